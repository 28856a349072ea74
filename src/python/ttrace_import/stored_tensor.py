"""A tensor that torch.save wrote by itself, as DCP writes chunks: its elements are found in the file without PyTorch
and without a copy."""

import math
import mmap
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ttrace_torch.library import Dtype, TensorView

from .pickle_cost import check_cost
from .refusal import Refused, require
from .restricted_pickle import Kept, unpickle

_REBUILDS = {"torch._utils._rebuild_tensor_v2": 6, "torch._utils._rebuild_tensor_v3": 7}  # and their arguments
_STORAGES = {
    "torch.DoubleStorage": Dtype.FLOAT64,
    "torch.FloatStorage": Dtype.FLOAT32,
    "torch.HalfStorage": Dtype.FLOAT16,
    "torch.BFloat16Storage": Dtype.BFLOAT16,
    "torch.LongStorage": Dtype.INT64,
    "torch.IntStorage": Dtype.INT32,
    "torch.ShortStorage": Dtype.INT16,
    "torch.CharStorage": Dtype.INT8,
    "torch.ByteStorage": Dtype.UINT8,
    "torch.BoolStorage": Dtype.BOOL,
}
_DTYPES = {f"torch.{dtype.text}": dtype for dtype in Dtype}
_ALLOWED = {*_REBUILDS, *_STORAGES, *_DTYPES, "torch.storage.UntypedStorage", "collections.OrderedDict"}
_MOST_BYTES_OF_PICKLE = 1 << 16
_LOCAL_HEADER = 30  # of a zip's member, before its name


def itemsize_of(dtype: Dtype) -> int:
    """Bytes of an element."""
    return {"64": 8, "32": 4, "16": 2}.get(dtype.name[-2:], 1)


class InMemory(NamedTuple):
    """A contiguous tensor, and what owns its memory."""

    owner: Any
    view: TensorView


class _Window(mmap.mmap):
    """A part of a file."""

    def seekable(self) -> bool:  # mmap has it from Python 3.13 on
        return True


class _OtherForm(Exception):
    pass


def map_tensor(path: Path, offset: int, length: int, dtype: Dtype, shape: tuple[int, ...]) -> Any:
    """A NumPy array of unsigned integers that have the elements' bits. None where it is anything but a contiguous
    tensor of plain elements in this machine's order of bytes: PyTorch reads it, or says what is wrong. Raises Refused
    where reading its pickle costs too much."""
    before = offset % mmap.ALLOCATIONGRANULARITY
    try:
        with open(path, "rb") as file:
            window = _Window(file.fileno(), length + before, access=mmap.ACCESS_READ, offset=offset - before)
        with zipfile.ZipFile(window) as archive:
            at = _elements_in(archive, window, dtype, shape, f"{path}: the chunk at byte {offset}")
        count = math.prod(shape)
        return (
            require("numpy").frombuffer(window, f"u{itemsize_of(dtype)}", count, at).reshape(shape) if count else None
        )
    except Refused:
        raise
    except Exception:  # whatever zipfile and pickle raise of what is none
        return None


def in_memory(array: Any, dtype: Dtype) -> InMemory:
    """`array` is contiguous, and has the bits of elements of the dtype."""
    return InMemory(array, TensorView(array.ctypes.data, dtype, array.shape))


def _elements_in(archive: zipfile.ZipFile, window: mmap.mmap, dtype: Dtype, shape: tuple[int, ...], where: str) -> int:
    """The position of the first one in the window."""
    names = archive.namelist()
    (pickled,) = (name for name in names if name.endswith("/data.pkl"))
    root = pickled.removesuffix("data.pkl")
    is_stored = all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())
    size = archive.getinfo(pickled).file_size
    if len(set(names)) < len(names) or not is_stored or size > _MOST_BYTES_OF_PICKLE:
        raise _OtherForm
    if archive.read(root + "byteorder").decode() != sys.byteorder:
        raise _OtherForm
    with archive.open(pickled) as file:
        check_cost(file, size, where)
    with archive.open(pickled) as file:
        key, first = _described(unpickle(file, _ALLOWED, _refuse, lambda pid: pid), dtype, shape)
    member = archive.getinfo(f"{root}data/{key}")
    if (first + math.prod(shape)) * itemsize_of(dtype) > member.file_size:
        raise _OtherForm
    local = window[member.header_offset : member.header_offset + _LOCAL_HEADER]
    behind = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    return member.header_offset + _LOCAL_HEADER + behind + first * itemsize_of(dtype)


def _described(tensor: Any, dtype: Dtype, shape: tuple[int, ...]) -> tuple[str, int]:
    """The key of its storage, and its first element there, of a tensor of that dtype and shape."""
    if not isinstance(tensor, Kept) or len(tensor.arguments) != _REBUILDS.get(tensor.of):
        raise _OtherForm
    (kind, storage, key, _, _), first, size, strides, _, hooks, *of_dtype = tensor.arguments
    found = _DTYPES.get(of_dtype[0].of) if of_dtype else _STORAGES.get(storage.of)
    is_plain = kind == "storage" and type(first) is int and first >= 0 and not hooks.state
    if not is_plain or found != dtype or size != shape or strides != _row_major(shape):
        raise _OtherForm
    return str(key), first


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides as PyTorch counts them, in elements."""
    return tuple(math.prod(max(extent, 1) for extent in shape[dim + 1 :]) for dim in range(len(shape)))


def _refuse(what: str) -> NoReturn:
    raise _OtherForm(what)
