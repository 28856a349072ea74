"""Records traces through the C API of libttrace, as a program would: see include/ttrace/ttrace.h."""

import ctypes
import os
import pathlib
import struct
from dataclasses import dataclass, replace

import h5py
import numpy

PROGRAM = pathlib.Path(os.environ["TTRACE_PROGRAM"]).resolve()
LIBRARY = ctypes.CDLL(str(PROGRAM.parent.parent / "lib" / "libttrace.so"))
LIBRARY.ttrace_last_error.restype = ctypes.c_char_p

KINDS = ["input", "output", "grad_output", "grad_input", "param", "param_grad", "main_grad", "param_delta",
         "param_after", "scalar"]
DTYPES = {"float64": 1, "float32": 2, "float16": 3, "bfloat16": 4, "int32": 9, "int64": 10}


class Run(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("directory", ctypes.c_char_p), ("run_id", ctypes.c_char_p),
                ("rank", ctypes.c_int32), ("world_size", ctypes.c_int32), ("axes", ctypes.c_char_p),
                ("coordinates", ctypes.c_char_p), ("compute_dtype", ctypes.c_char_p),
                ("provenance", ctypes.c_char_p), ("annotations", ctypes.c_char_p)]


class Identity(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("iteration", ctypes.c_int32), ("microbatch", ctypes.c_int32),
                ("chunk", ctypes.c_int32), ("pass_", ctypes.c_int), ("kind", ctypes.c_int), ("name", ctypes.c_char_p),
                ("module_class", ctypes.c_char_p)]


class CTensor(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int),
                ("ndim", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64))]


@dataclass
class Tensor:
    name: str
    values: numpy.ndarray  # of bfloat16: its bits, as uint16
    kind: str = "output"
    iteration: int = 0
    microbatch: int = 0
    dtype: str = ""  # that of `values` where empty

    def with_values(self, values):
        return replace(self, values=values)


def bfloat16(tensor):
    """The tensor in bfloat16; its values must be exact in it."""
    bits = tensor.values.astype("float32").view("uint32")
    assert not (bits & 0xFFFF).any()
    return replace(tensor, values=(bits >> 16).astype("uint16"), dtype="bfloat16")


def check(status):
    assert status == 0, LIBRARY.ttrace_last_error().decode()


class Recorder:
    """One rank of one run."""

    def __init__(self, directory, rank=0, world_size=1, run_id="run", axes=None, coordinates=None,
                 compute_dtype="float32", provenance=None):
        run = Run(ctypes.sizeof(Run), os.fsencode(directory), run_id.encode(), rank, world_size)
        run.axes = axes.encode() if axes else None
        run.coordinates = coordinates.encode() if coordinates else None
        run.compute_dtype = compute_dtype.encode()
        run.provenance = provenance.encode() if provenance else None
        self.handle = ctypes.c_void_p()
        check(LIBRARY.ttrace_open(ctypes.byref(run), ctypes.byref(self.handle)))

    def record(self, tensor):
        values = numpy.ascontiguousarray(tensor.values).reshape(tensor.values.shape)
        identity = Identity(ctypes.sizeof(Identity), tensor.iteration, tensor.microbatch, 0, 1,
                            1 + KINDS.index(tensor.kind), tensor.name.encode())
        shape = (ctypes.c_int64 * max(values.ndim, 1))(*values.shape)
        described = CTensor(ctypes.sizeof(CTensor), values.ctypes.data, DTYPES[tensor.dtype or str(values.dtype)],
                            values.ndim, shape)
        check(LIBRARY.ttrace_record(self.handle, ctypes.byref(identity), ctypes.byref(described)))

    def close(self, complete=True):
        check(LIBRARY.ttrace_close(self.handle, int(complete)))


def record_rank(directory, tensors, complete=True, **run):
    recorder = Recorder(directory, **run)
    for tensor in tensors:
        recorder.record(tensor)
    recorder.close(complete)


def record_run(directory, tensors_of_rank, axes=None, **run):
    """A trace of as many ranks as there are lists of tensors."""
    run = {"run_id": directory.name, **run}
    for rank, tensors in enumerate(tensors_of_rank):
        record_rank(directory, tensors, rank=rank, world_size=len(tensors_of_rank), axes=axes, **run)
    return directory


def edit_index(path, row, **fields):
    """Makes the index of a rank's file lie about one tensor; the seal no longer fits."""
    with h5py.File(path, "r+") as file:
        rows = file["ttrace/index"][()]
        for name, value in fields.items():
            rows[name][row] = value
        file["ttrace/index"][...] = rows


def seal_again(path):
    """Gives an edited file the seal of an honest one: src/record/format.h."""
    xxhash = ctypes.CDLL("libxxhash.so.0")
    xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64

    def checksum(data, seed):
        return xxhash.XXH3_64bits_withSeed(bytes(data), ctypes.c_size_t(len(data)), ctypes.c_uint64(seed))

    data = bytearray(path.read_bytes())
    (metadata,) = struct.unpack_from("<Q", data, 80)
    data[160:168] = bytes(8)
    struct.pack_into("<Q", data, 160, checksum(data[metadata:], checksum(data[:4096], 0)))
    path.write_bytes(data)
