"""libttrace by ctypes: the structs and calls of ttrace.h. Numbers here are that header's."""

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

INVALID, IO, FULL, FORKED, EXISTS = 1, 2, 3, 4, 5

DTYPES = {
    "float64": 1,
    "float32": 2,
    "float16": 3,
    "bfloat16": 4,
    "float8_e4m3fn": 5,
    "float8_e5m2": 6,
    "int8": 7,
    "int16": 8,
    "int32": 9,
    "int64": 10,
    "uint8": 11,
    "bool": 12,
}

INPUT, OUTPUT, GRAD_OUTPUT, GRAD_INPUT, PARAM, PARAM_GRAD, MAIN_GRAD, PARAM_DELTA, PARAM_AFTER, SCALAR = range(1, 11)
FORWARD, RECOMPUTE = 1, 2
NO_MICROBATCH = -1
MAX_DIMS = 8


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
    ]


_SIZES = [c_int64 * ndim for ndim in range(MAX_DIMS + 1)]


class TraceError(Exception):
    """A call of libttrace failed; `status` is one of the numbers above."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Recorder:
    """One rank's file. Each method raises TraceError where the C call fails."""

    def __init__(
        self,
        library: str,
        directory: str,
        run_id: str,
        rank: int,
        world_size: int,
        axes: str,
        coordinates: str,
        annotations: str,
    ):
        # RTLD_LOCAL keeps the HDF5 behind libttrace from being taken for the one that h5py brings.
        self._calls = _declare(ctypes.CDLL(library, mode=os.RTLD_LOCAL | os.RTLD_NOW))
        self._handle = c_void_p()
        run = _Run(
            ctypes.sizeof(_Run),
            _text(directory),
            _text(run_id),
            rank,
            world_size,
            _text(axes),
            _text(coordinates),
            None,
            None,
            _text(annotations),
        )
        self._check(self._calls.ttrace_open(ctypes.byref(run), ctypes.byref(self._handle)))

    def record(
        self,
        iteration: int,
        microbatch: int,
        chunk: int,
        pass_: int,
        kind: int,
        name: str,
        module_class: str,
        data: int,
        dtype: int,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        mapping: str | None = None,
    ) -> None:
        """`data` is an address in host memory; `strides` count elements, None where contiguous; `mapping` is the
        JSON of ttrace/mapping.h."""
        identity = _identity(iteration, microbatch, chunk, pass_, kind, name, module_class)
        sizes = _SIZES[len(shape)]
        tensor = _Tensor(
            ctypes.sizeof(_Tensor),
            data,
            dtype,
            len(shape),
            sizes(*shape),
            None if strides is None else sizes(*strides),
            _text(mapping),
        )
        self._check(self._calls.ttrace_record(self._handle, ctypes.byref(identity), ctypes.byref(tensor)))

    def perturbation(
        self,
        seed: int,
        iteration: int,
        microbatch: int,
        chunk: int,
        kind: int,
        name: str,
        shape: Sequence[int],
        out: int,
    ) -> None:
        """Fills the fp32 buffer at address `out`, which has room for a tensor of `shape`."""
        identity = _identity(iteration, microbatch, chunk, FORWARD, kind, name, "")
        sizes = _SIZES[len(shape)](*shape)
        self._check(
            self._calls.ttrace_perturbation(
                self._handle, seed, ctypes.byref(identity), len(shape), sizes, ctypes.cast(out, POINTER(c_float))
            )
        )

    def describe(self, compute_dtype: str | None, provenance: str | None) -> None:
        self._check(self._calls.ttrace_describe(self._handle, _text(compute_dtype), _text(provenance)))

    def close(self, complete: bool) -> None:
        handle, self._handle = self._handle, c_void_p()
        self._check(self._calls.ttrace_close(handle, int(complete)))

    def _check(self, status: int) -> None:
        _check(self._calls, status)


class Source:
    """A rank's file of a finished trace, to take tensors from. Raises TraceError where the C calls fail."""

    def __init__(self, library: str, directory: str, rank: int, world_size: int):
        self._calls = _declare(ctypes.CDLL(library, mode=os.RTLD_LOCAL | os.RTLD_NOW))
        self._handle = c_void_p()  # never closed: tensors point into the file
        _check(
            self._calls, self._calls.ttrace_open_source(_text(directory), rank, world_size, ctypes.byref(self._handle))
        )

    def find(
        self, iteration: int, microbatch: int, chunk: int, pass_: int, kind: int, name: str
    ) -> tuple[int, int, tuple[int, ...]] | None:
        """Address, dtype and shape of what it holds, contiguous; None where it holds none."""
        identity = _identity(iteration, microbatch, chunk, pass_, kind, name, "")
        tensor = _Tensor(ctypes.sizeof(_Tensor))
        _check(self._calls, self._calls.ttrace_find(self._handle, ctypes.byref(identity), ctypes.byref(tensor)))
        return (tensor.data, tensor.dtype, tuple(tensor.shape[: tensor.ndim])) if tensor.dtype else None


def _check(calls: ctypes.CDLL, status: int) -> None:
    if status != 0:
        raise TraceError(status, calls.ttrace_last_error().decode("utf-8", "replace"))


def _declare(calls: ctypes.CDLL) -> ctypes.CDLL:
    calls.ttrace_last_error.restype = c_char_p
    calls.ttrace_open.argtypes = [POINTER(_Run), POINTER(c_void_p)]
    calls.ttrace_record.argtypes = [c_void_p, POINTER(_Identity), POINTER(_Tensor)]
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


def _identity(
    iteration: int, microbatch: int, chunk: int, pass_: int, kind: int, name: str, module_class: str
) -> _Identity:
    return _Identity(
        ctypes.sizeof(_Identity),
        iteration,
        microbatch,
        chunk,
        pass_,
        kind,
        name.encode(),
        module_class.encode() or None,
    )


def _text(value: str | None) -> bytes | None:
    return value.encode() if value else None
