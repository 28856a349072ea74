"""A recorder as small as tests need it. Run as a program, it records until it is killed."""

import ctypes
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
LIBRARY = pathlib.Path(os.environ.get("TTRACE_BUILD", ROOT / "build")) / "lib/libttrace.so"
sys.path.insert(0, str(ROOT / "src" / "python"))

from ttrace_torch import library  # noqa: E402
from ttrace_torch.library import OUTPUT, PARAM, TraceError  # noqa: E402, F401

FLOAT64, FLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, INT8, INT16, INT32, INT64, UINT8, BOOL = range(1, 13)


class Recorder:
    def __init__(self, directory, rank=0, world_size=1, axes=""):
        self._recorder = library.Recorder(str(LIBRARY), str(directory), "run-1", rank, world_size, axes, "", "")

    def record(self, name, data, dtype, shape, strides=None, kind=OUTPUT, microbatch=0, mapping=None):
        """`data` is bytes or the address of them."""
        address = ctypes.cast(data, ctypes.c_void_p).value if isinstance(data, bytes) else data
        self._recorder.record(
            0, microbatch, 0, library.FORWARD, kind, name, "Module", address, dtype, shape, strides, mapping
        )

    def close(self, complete=True):
        self._recorder.close(complete)


def record_until_killed(directory):
    """Says on stdout how many tensors are recorded, each time before the next one is begun."""
    recorder = Recorder(directory)
    for number in range(1_000_000):
        size = 1 + number * 7919 % 5000
        recorder.record(f"layers.{number}", bytes([number % 256]) * (4 * size), FLOAT32, (size,))
        os.write(1, f"{number + 1}\n".encode())


if __name__ == "__main__":
    record_until_killed(sys.argv[1])
