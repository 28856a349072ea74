"""The C API by ctypes, as small as tests need it. Run as a program, it records until it is killed."""

import ctypes
import os
import pathlib
import sys

LIBRARY = pathlib.Path(os.environ.get("TTRACE_BUILD", pathlib.Path(__file__).parents[2] / "build")) / "lib/libttrace.so"

FLOAT64, FLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, INT8, INT16, INT32, INT64, UINT8, BOOL = range(1, 13)
OUTPUT, PARAM = 2, 5


def _struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": [("struct_size", ctypes.c_size_t), *fields]})


_int, _text, _dims = ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64)
Run = _struct("Run", ("directory", _text), ("run_id", _text), ("rank", _int), ("world_size", _int), ("axes", _text),
              ("coordinates", _text), ("compute_dtype", _text), ("provenance", _text), ("annotations", _text))
Identity = _struct("Identity", ("iteration", _int), ("microbatch", _int), ("chunk", _int), ("pass_", _int),
                   ("kind", _int), ("name", _text), ("module_class", _text))
Tensor = _struct("Tensor", ("data", ctypes.c_void_p), ("dtype", _int), ("ndim", _int), ("shape", _dims),
                 ("strides", _dims))


class RecordError(Exception):
    pass


class Recorder:
    def __init__(self, directory, rank=0, world_size=1, axes="", run_id="run-1"):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.ttrace_last_error.restype = _text
        self.library.ttrace_record.argtypes = [ctypes.c_void_p] * 3
        self.library.ttrace_close.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.handle = ctypes.c_void_p()
        run = Run(ctypes.sizeof(Run), os.fsencode(directory), run_id.encode(), rank, world_size, axes.encode())
        self._check(self.library.ttrace_open(ctypes.byref(run), ctypes.byref(self.handle)))

    def record(self, name, data, dtype, shape, strides=None, kind=OUTPUT, microbatch=0):
        """`data` is bytes or the address of them."""
        dims = (ctypes.c_int64 * len(shape))(*shape)
        steps = (ctypes.c_int64 * len(shape))(*strides) if strides is not None else None
        identity = Identity(ctypes.sizeof(Identity), 0, microbatch, 0, 1, kind, name.encode(), b"Module")
        address = ctypes.cast(data, ctypes.c_void_p) if isinstance(data, bytes) else data
        tensor = Tensor(ctypes.sizeof(Tensor), address, dtype, len(shape), dims, steps)
        self._check(self.library.ttrace_record(self.handle, ctypes.byref(identity), ctypes.byref(tensor)))

    def close(self, complete=True):
        handle, self.handle = self.handle, ctypes.c_void_p()
        self._check(self.library.ttrace_close(handle, int(complete)))

    def _check(self, status):
        if status:
            raise RecordError(f"{status}: {self.library.ttrace_last_error().decode()}")


def record_until_killed(directory):
    """Says on stdout how many tensors are recorded, each time before the next one is begun."""
    recorder = Recorder(directory)
    for number in range(1_000_000):
        size = 1 + number * 7919 % 5000
        recorder.record(f"layers.{number}", bytes([number % 256]) * (4 * size), FLOAT32, (size,))
        os.write(1, f"{number + 1}\n".encode())


if __name__ == "__main__":
    record_until_killed(sys.argv[1])
