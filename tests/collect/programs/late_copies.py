"""late_copies.py [--fail-at N] PROGRAM ARGUMENTS...: the program, whose tensors reach the host as if a device had them:
late, one after the other, in a thread. Copy number N does not arrive."""

import queue
import random
import runpy
import sys
import threading
import time

import torch


class LateStream:
    """In the place of SideStream. What it copies has wrong values until it has arrived."""

    def __init__(self, fail_at=None):
        self._jobs, self._begun, self._fail_at = queue.Queue(), 0, fail_at
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self, tensor):
        copy = LateCopy(tensor, fails=self._begun == self._fail_at)
        self._begun += 1
        self._jobs.put(copy)
        return copy

    def _run(self):
        pauses = random.Random(0)
        while True:
            copy = self._jobs.get()
            if pauses.random() < 0.05:
                time.sleep(0.002)
            copy.arrive()


class LateCopy:
    under_way = most_under_way = 0

    def __init__(self, tensor, fails):
        self._on_device = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.host = torch.empty_like(self._on_device)
        self.host.view(-1).view(torch.uint8).fill_(0x55)
        self._there, self._fails = threading.Event(), fails
        LateCopy.under_way += 1
        LateCopy.most_under_way = max(LateCopy.most_under_way, LateCopy.under_way)

    def arrive(self):
        self.host.copy_(self._on_device)
        LateCopy.under_way -= 1
        self._there.set()

    def has_arrived(self):
        return self._there.is_set()

    def wait(self):
        self._there.wait()
        if self._fails:
            raise RuntimeError("an illegal memory access was encountered\nmore of the device's words")


def main():
    arguments = sys.argv[1:]
    fail_at = None
    if arguments[0] == "--fail-at":
        fail_at, arguments = int(arguments[1]), arguments[2:]
    side_stream = sys.modules.get("ttrace_torch.side_stream")  # it is not there where nothing is collected
    if side_stream is not None:
        stream = LateStream(fail_at)
        side_stream.side_stream_of = lambda device: stream
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")
    print("most copies under way:", LateCopy.most_under_way)


if __name__ == "__main__":
    main()
