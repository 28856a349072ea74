"""libttrace by ctypes: the enumerations, structs and calls of include/ttrace/ttrace.h, for a program that records a
trace (`Recorder`) and one that takes tensors from a trace (`Source`).

tests/trace/test_numbers.py holds the numbers here equal to those of ttrace.h and of the C++ headers."""

import ctypes
import functools
import os
import struct
import threading
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from enum import IntEnum
from typing import NamedTuple

from .names import recordable

NO_MICROBATCH = -1
MAX_DIMS = 8


class _NamedNumber(IntEnum):
    @property
    def text(self) -> str:
        """As traces and reports write it: "grad_output", "float8_e4m3fn"."""
        return self.name.lower()


class Status(IntEnum):
    OK = 0
    INVALID = 1  # an argument is wrong
    IO = 2  # the file system or HDF5 refused
    FULL = 3  # no space is left
    FORKED = 4  # the recorder belongs to the parent of this process
    EXISTS = 5  # another process already records this rank of this run


class Dtype(_NamedNumber):
    """`text` is PyTorch's name."""

    FLOAT64 = 1
    FLOAT32 = 2
    FLOAT16 = 3
    BFLOAT16 = 4
    FLOAT8_E4M3FN = 5
    FLOAT8_E5M2 = 6
    INT8 = 7
    INT16 = 8
    INT32 = 9
    INT64 = 10
    UINT8 = 11
    BOOL = 12


class Kind(_NamedNumber):
    """What a tensor is; src/base/trace.h says more of each."""

    INPUT = 1
    OUTPUT = 2
    GRAD_OUTPUT = 3
    GRAD_INPUT = 4
    PARAM = 5
    PARAM_GRAD = 6
    MAIN_GRAD = 7
    PARAM_DELTA = 8
    PARAM_AFTER = 9
    SCALAR = 10
    MASTER = 11
    EXP_AVG = 12
    EXP_AVG_SQ = 13
    MAX_EXP_AVG_SQ = 14
    MOMENTUM_BUFFER = 15
    STEP_GRAD = 16
    BUFFER = 17
    BUFFER_AFTER = 18


_MICROBATCH_KINDS = (Kind.INPUT, Kind.OUTPUT, Kind.GRAD_OUTPUT, Kind.GRAD_INPUT, Kind.PARAM_GRAD, Kind.SCALAR)


def microbatch_of(kind: Kind, given: int | None) -> int:
    """Parameters have none, nor has a scalar for which nothing says one; other tensors are of the first."""
    if kind not in _MICROBATCH_KINDS or (kind == Kind.SCALAR and given is None):
        return NO_MICROBATCH
    return given or 0


class Pass(_NamedNumber):
    FORWARD = 1
    RECOMPUTE = 2  # the second forward of activation checkpointing


class TensorId(NamedTuple):
    """What tells a tensor from every other one in a rank's file."""

    iteration: int
    microbatch: int  # as this rank counts them, or NO_MICROBATCH
    chunk: int  # of the model, under virtual pipeline stages; else 0
    pass_: Pass
    kind: Kind
    name: str  # module path, as this rank knows it; with member and call: "shared:1#2"


class TensorView(NamedTuple):
    """A tensor in host memory."""

    address: int
    dtype: Dtype
    shape: Sequence[int]
    strides: Sequence[int] | None = None  # in elements; None: contiguous, row-major


class TraceError(Exception):
    """A call of libttrace failed."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = Status(status)


class Recorder:
    """One rank's file. Each method raises TraceError where the C call fails."""

    def __init__(
        self,
        library: str,
        directory: str,
        *,
        run_id: str,
        rank: int = 0,
        world_size: int = 1,
        axes: str = "",
        coordinates: str = "",
        annotations: str = "",
        queue_bytes: int = 0,
    ):
        """`library` is the path of libttrace; the rest as in ttrace_run."""
        self._calls = _load(library)
        self._handle = c_void_p()
        self._arguments = _Arguments()
        run = _Run(
            struct_size=ctypes.sizeof(_Run),
            directory=_text(directory),
            run_id=_text(run_id),
            rank=rank,
            world_size=world_size,
            axes=_text(axes),
            coordinates=_text(coordinates),
            annotations=_text(annotations),
            queue_bytes=queue_bytes,
        )
        self._check(self._calls.ttrace_open(ctypes.byref(run), ctypes.byref(self._handle)))

    def record(
        self, tensor_id: TensorId, view: TensorView, *, module_class: str = "", mapping: str = "", sketch: bool = False
    ) -> None:
        """`mapping` is the JSON of src/base/mapping.h. `sketch`: one in place of the elements, where the tensor
        is large enough."""
        iteration, microbatch, chunk, pass_, kind, name = tensor_id
        address, dtype, shape, strides = view
        # The texts are kept alive until the call has returned.
        name_address, _name = _placed_name(name)
        class_address, _class = _placed_name(module_class)
        mapping_address, _mapping = _placed(mapping) if mapping else (0, None)
        arguments = self._arguments
        _PACKED[len(shape)].pack_into(
            arguments.memory,
            0,
            _IDENTITY_BYTES,
            iteration,
            microbatch,
            chunk,
            pass_,
            kind,
            name_address,
            class_address,
            _TENSOR_BYTES,
            address,
            dtype,
            len(shape),
            arguments.shape_address,
            0 if strides is None else arguments.strides_address,
            mapping_address,
            sketch,
            0,  # no fingerprint
            *shape,
        )
        if strides is not None:
            arguments.memory.strides[: len(strides)] = strides
        status = self._calls.ttrace_record(self._handle, arguments.identity, arguments.tensor)
        if status:
            self._check(status)

    def record_sketch(
        self, tensor_id: TensorId, view: TensorView, fingerprint: int, *, module_class: str = "", mapping: str = ""
    ) -> None:
        """`view` is of the tensor, but for the address: there lies its sketch, in cells of `cell_edges`."""
        identity, tensor = _identity(tensor_id, module_class), _shaped(view.dtype, view.shape, mapping)
        tensor.data, tensor.sketch, tensor.fingerprint = view.address, _SKETCHED, fingerprint
        self._check(self._calls.ttrace_record(self._handle, ctypes.byref(identity), ctypes.byref(tensor)))

    def cell_edges(self, dtype: Dtype, shape: Sequence[int], mapping: str) -> tuple[int, ...] | None:
        """Sizes of the cells of such a tensor's sketch; None where it is recorded whole in any case."""
        edges = (c_int64 * len(shape))()
        self._check(self._calls.ttrace_cell_edges(ctypes.byref(_shaped(dtype, shape, mapping)), edges))
        return tuple(edges) if any(edges) else None

    def perturbation(self, seed: int, tensor_id: TensorId, shape: Sequence[int], out: int) -> None:
        """Fills the fp32 buffer at address `out`, which has room for a tensor of `shape`."""
        identity = _identity(tensor_id)
        sizes = (c_int64 * len(shape))(*shape)
        out_pointer = ctypes.cast(out, POINTER(c_float))
        self._check(
            self._calls.ttrace_perturbation(self._handle, seed, ctypes.byref(identity), len(shape), sizes, out_pointer)
        )

    def describe(self, compute_dtype: str, provenance: str) -> None:
        """Sets what was learnt after opening; "" leaves it. `provenance` is a JSON object."""
        self._check(self._calls.ttrace_describe(self._handle, _text(compute_dtype), _text(provenance)))

    def describe_axes(self, axes: str, coordinates: str) -> None:
        """Sets what was "" when it was opened, once."""
        self._check(self._calls.ttrace_describe_axes(self._handle, _text(axes), _text(coordinates)))

    def close(self, complete: bool) -> None:
        """`complete`: the trace of this rank is whole."""
        handle, self._handle = self._handle, c_void_p()
        self._check(self._calls.ttrace_close(handle, int(complete)))

    def _check(self, status: int) -> None:
        _check(self._calls, status)


def fingerprint(library: str, address: int, size: int) -> int:
    """Of the `size` bytes at `address`: a number of 64 bits, signed, as device_sketches.fingerprint makes the same one.
    `library` is the path of libttrace."""
    return _load(library).ttrace_fingerprint(address, size)


class Source:
    """A rank's file of a finished trace, to take tensors from. Raises TraceError where the C calls fail."""

    def __init__(self, library: str, directory: str, *, rank: int, world_size: int):
        self._calls = _load(library)
        self._handle = c_void_p()  # never closed: tensors point into the file
        _check(
            self._calls, self._calls.ttrace_open_source(_text(directory), rank, world_size, ctypes.byref(self._handle))
        )

    def find(self, tensor_id: TensorId) -> TensorView | None:
        """What the file holds of it, contiguous; None where it holds nothing."""
        identity = _identity(tensor_id)
        tensor = _Tensor(_TENSOR_BYTES)
        _check(self._calls, self._calls.ttrace_find(self._handle, ctypes.byref(identity), ctypes.byref(tensor)))
        if tensor.dtype == 0:
            return None
        return TensorView(tensor.data, Dtype(tensor.dtype), tuple(tensor.shape[: tensor.ndim]))


class _Run(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("directory", c_char_p),
        ("run_id", c_char_p),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("axes", c_char_p),
        ("coordinates", c_char_p),
        ("compute_dtype", c_char_p),
        ("provenance", c_char_p),
        ("annotations", c_char_p),
        ("queue_bytes", c_size_t),
    ]


class _Identity(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("iteration", c_int32),
        ("microbatch", c_int32),
        ("chunk", c_int32),
        ("pass_", c_int),
        ("kind", c_int),
        ("name", c_char_p),
        ("module_class", c_char_p),
    ]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("dtype", c_int),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("mapping", c_char_p),
        ("sketch", c_int32),
        ("fingerprint", c_uint64),
    ]


class _Record(ctypes.Structure):
    """What ttrace_record is given, as `_PACKED` fills it: to set one field after the other takes ten times as long."""

    _fields_ = [
        ("identity", _Identity),
        ("tensor", _Tensor),
        ("shape", c_int64 * MAX_DIMS),
        ("strides", c_int64 * MAX_DIMS),
    ]


# By the number of dimensions, all of it but the strides.
_PACKED = [struct.Struct(f"@N5iPP NPiiPPPiQ {ndim}q") for ndim in range(MAX_DIMS + 1)]
_IDENTITY_BYTES, _TENSOR_BYTES = ctypes.sizeof(_Identity), ctypes.sizeof(_Tensor)


_SKETCHED = 2  # TTRACE_SKETCHED


def _shaped(dtype: Dtype, shape: Sequence[int], mapping: str) -> _Tensor:
    sizes = (c_int64 * len(shape))(*shape)
    return _Tensor(_TENSOR_BYTES, None, dtype, len(shape), sizes, None, _text(mapping))


class _Arguments(threading.local):
    """Memory for the arguments of one call, for each thread."""

    def __init__(self) -> None:
        self.memory = _Record()
        self.identity = ctypes.byref(self.memory)
        self.tensor = ctypes.byref(self.memory, _Record.tensor.offset)
        self.shape_address = ctypes.addressof(self.memory) + _Record.shape.offset
        self.strides_address = ctypes.addressof(self.memory) + _Record.strides.offset


def _identity(tensor_id: TensorId, module_class: str = "") -> _Identity:
    return _Identity(
        _IDENTITY_BYTES,
        tensor_id.iteration,
        tensor_id.microbatch,
        tensor_id.chunk,
        tensor_id.pass_,
        tensor_id.kind,
        _text(recordable(tensor_id.name)),
        _text(recordable(module_class)),
    )


@functools.lru_cache(maxsize=1 << 14)  # a name comes again with each micro-batch and kind
def _placed_name(name: str) -> tuple[int, bytes | None]:
    return _placed(recordable(name))


@functools.lru_cache(maxsize=1 << 14)
def _placed(text: str) -> tuple[int, bytes | None]:
    """The address of the text in C, and what has to live as long as that is used."""
    placed = _text(text)
    return ctypes.cast(c_char_p(placed), c_void_p).value or 0, placed


def _text(value: str) -> bytes | None:
    """NULL for the empty text: C takes neither as a value."""
    return value.encode() or None


def _check(calls: ctypes.CDLL, status: int) -> None:
    if status:
        raise TraceError(status, calls.ttrace_last_error().decode("utf-8", "replace"))


@functools.cache
def _load(library: str) -> ctypes.CDLL:
    # RTLD_LOCAL keeps the HDF5 behind libttrace from being taken for the one that h5py brings.
    calls = ctypes.CDLL(library, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    calls.ttrace_last_error.restype = c_char_p
    calls.ttrace_open.argtypes = [POINTER(_Run), POINTER(c_void_p)]
    calls.ttrace_describe_axes.argtypes = [c_void_p, c_char_p, c_char_p]
    # ttrace_record is declared nothing of: to look at what it is given takes as long as the call.
    calls.ttrace_cell_edges.argtypes = [POINTER(_Tensor), POINTER(c_int64)]
    calls.ttrace_fingerprint.argtypes, calls.ttrace_fingerprint.restype = [c_void_p, c_size_t], c_int64
    calls.ttrace_describe.argtypes = [c_void_p, c_char_p, c_char_p]
    calls.ttrace_close.argtypes = [c_void_p, c_int]
    calls.ttrace_perturbation.argtypes = [
        c_void_p,
        c_uint64,
        POINTER(_Identity),
        c_int32,
        POINTER(c_int64),
        POINTER(c_float),
    ]
    calls.ttrace_open_source.argtypes = [c_char_p, c_int32, c_int32, POINTER(c_void_p)]
    calls.ttrace_find.argtypes = [c_void_p, POINTER(_Identity), POINTER(_Tensor)]
    return calls
