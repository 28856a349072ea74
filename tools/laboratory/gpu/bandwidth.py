"""How fast bytes go on this machine, in GB/s, on each stretch of a recorded tensor's way: printed as JSON.

A copy on the device; from there to memory of the host, pinned and not; from the host to a file, as written by one
thread. The last is of the directory for temporary files, where traces of the trial lie."""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable

import torch

REPEATED = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--directory", default=tempfile.gettempdir())
    arguments = parser.parse_args()
    device = arguments.device
    source = torch.zeros(arguments.mib << 20, dtype=torch.uint8, device=device)
    source.random_(256)
    host = torch.empty(source.shape, dtype=torch.uint8, device="cpu")
    found = {"on the device": speed(device, source.numel(), source.clone)}
    found["to the host"] = speed(device, source.numel(), lambda: host.copy_(source))
    if device != "cpu":
        pinned = torch.empty(source.shape, dtype=torch.uint8, pin_memory=True)
        found["to pinned memory"] = speed(device, source.numel(), lambda: pinned.copy_(source, non_blocking=True))
    with tempfile.NamedTemporaryFile(dir=arguments.directory) as file:
        found["to a file"] = speed("cpu", source.numel(), lambda: os.pwrite(file.fileno(), host.numpy(), 0))
    print(json.dumps({"gb_per_s": found}))


def speed(device: str, size: int, move: Callable[[], object]) -> float:
    synchronize = getattr(torch, device).synchronize
    move()
    synchronize()
    started = time.perf_counter()
    for _ in range(REPEATED):
        move()
    synchronize()
    return round(REPEATED * size / (time.perf_counter() - started) / 1e9, 2)


if __name__ == "__main__":
    main()
