"""A recorder as small as tests need it. Run as a program, it records until it is killed."""

import ctypes
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
LIBRARY = pathlib.Path(os.environ.get("TTRACE_BUILD", ROOT / "build")) / "lib/libttrace.so"
sys.path.insert(0, str(ROOT / "src" / "python"))

from ttrace_torch import library  # noqa: E402 (found by the path just set)
from ttrace_torch.library import Dtype, Kind, Pass, TensorId, TensorView  # noqa: E402 (the same)


class Recorder:
    def __init__(self, directory, rank=0, world_size=1, axes=""):
        self._recorder = library.Recorder(
            str(LIBRARY), str(directory), run_id="run-1", rank=rank, world_size=world_size, axes=axes
        )

    def record(
        self, name, data, dtype, shape, strides=None, kind=Kind.OUTPUT, pass_=Pass.FORWARD, microbatch=0, mapping=""
    ):
        """`data` is bytes or the address of them."""
        address = ctypes.cast(data, ctypes.c_void_p).value if isinstance(data, bytes) else data
        tensor_id = TensorId(0, microbatch, 0, pass_, kind, name)
        view = TensorView(address, dtype, shape, strides)
        self._recorder.record(tensor_id, view, module_class="Module", mapping=mapping)

    def describe(self, provenance):
        self._recorder.describe("", provenance)

    def close(self, complete=True):
        self._recorder.close(complete)


def record_until_killed(directory):
    """Says on stdout how many tensors are recorded, each time before the next one is begun."""
    recorder = Recorder(directory)
    for number in range(1_000_000):
        size = 1 + number * 7919 % 5000
        recorder.record(f"layers.{number}", bytes([number % 256]) * (4 * size), Dtype.FLOAT32, (size,))
        os.write(1, f"{number + 1}\n".encode())


if __name__ == "__main__":
    record_until_killed(sys.argv[1])
