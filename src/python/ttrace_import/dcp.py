"""Checkpoints of torch.distributed.checkpoint (DCP): a folder with `.metadata`, a pickle that says which tensors there
are and where their chunks lie, and files of chunks, each as torch.save writes a tensor."""

import io
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttrace_torch.library import MAX_DIMS, Dtype

from .budget import Budget
from .refusal import Refused, first_line, one_line, require, shown
from .restricted_pickle import Kept, read_pickle
from .source_files import member, regular_file
from .stored_tensor import in_memory, itemsize_of, map_tensor
from .tensor_files import available_memory, load_pickle

METADATA = ".metadata"
_CHECKPOINT = "torch.distributed.checkpoint"
_ALLOWED = {
    *(
        f"{_CHECKPOINT}.metadata.{name}"
        for name in (
            "Metadata",
            "TensorStorageMetadata",
            "BytesStorageMetadata",
            "TensorProperties",
            "ChunkStorageMetadata",
            "MetadataIndex",
            "StorageMeta",
            "MEM_FORMAT_ENCODING",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    *(f"{_CHECKPOINT}.filesystem.{name}" for name in ("_StorageInfo", "_StoragePrefix")),
    # Megatron-core keeps its plans of saving there.
    *(f"{_CHECKPOINT}.planner.{name}" for name in ("SavePlan", "WriteItem", "WriteItemType", "TensorWriteData")),
    *(f"torch.{dtype.text}" for dtype in Dtype),
    "torch.Size",
    "torch.serialization._get_layout",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
}
_MOST_CHUNKS = 10_000  # of a tensor
_MOST_EXTENT = 1 << 40

_Box = list[tuple[int, int]]  # start and end along each dimension


@dataclass(frozen=True)
class _Chunk:
    start: tuple[int, ...]
    shape: tuple[int, ...]
    file: Path
    offset: int
    length: int


@dataclass(frozen=True)
class Stored:
    """A tensor of the checkpoint, which `load` puts together."""

    keys: tuple[str, ...]  # as nested in what was saved: ("model", "layers.0.weight")
    dtype: Dtype
    shape: tuple[int, ...]
    chunks: tuple[_Chunk, ...]
    budget: Budget

    def load(self) -> Any:
        name = one_line(".".join(self.keys))
        size = math.prod(self.shape) * itemsize_of(self.dtype)
        self.budget.at(name)
        self.budget.take(size + sum(chunk.length for chunk in self.chunks), name)
        if len(self.chunks) > 1 and size > available_memory():
            raise Refused(f"{name}: {size} bytes; expected no more than there is memory for")
        numpy = require("numpy")
        whole = None
        for chunk in self.chunks:
            part = map_tensor(chunk.file, chunk.offset, chunk.length, self.dtype, chunk.shape)
            if part is None:
                part = self._loaded(chunk, name)
            if len(self.chunks) == 1:
                return in_memory(part, self.dtype)
            if whole is None:
                whole = numpy.empty(self.shape, part.dtype)
            whole[tuple(slice(at, at + extent) for at, extent in zip(chunk.start, chunk.shape, strict=True))] = part
        return in_memory(numpy.empty(self.shape, f"u{itemsize_of(self.dtype)}") if whole is None else whole, self.dtype)

    def _loaded(self, chunk: _Chunk, name: str) -> Any:
        """As `map_tensor` returns it, by PyTorch."""
        torch = require("torch")
        with open(chunk.file, "rb") as file:
            file.seek(chunk.offset)
            data = file.read(chunk.length)
        where = f"{chunk.file}: the chunk of {name} at byte {chunk.offset}"
        try:
            part = load_pickle(io.BytesIO(data), where)
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"{one_line(where)}: {first_line(error)}; expected a tensor") from None
        dtype = getattr(torch, self.dtype.text)
        if not isinstance(part, torch.Tensor) or tuple(part.shape) != chunk.shape or part.dtype != dtype:
            raise Refused(f"{one_line(where)}: expected a tensor of {self.dtype.text} {list(chunk.shape)}")
        bits = getattr(torch, f"int{8 * itemsize_of(self.dtype)}")
        return part.detach().contiguous().view(bits).numpy().view(f"u{itemsize_of(self.dtype)}")


def tensors_of(folder: Path, budget: Budget, others: list[str]) -> Iterator[Stored]:
    """`others` gets the names of entries that are no tensors. Raises Refused."""
    path = regular_file(folder / METADATA)
    budget.at(path)
    try:
        yield from _stored(folder, path, read_pickle(path, _ALLOWED), budget, others)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise Refused(f"{one_line(str(path))}: {first_line(error)}; expected metadata of DCP") from None


def _stored(folder: Path, path: Path, metadata: Any, budget: Budget, others: list[str]) -> Iterator[Stored]:
    fields = _state(metadata, "Metadata")
    places: dict[tuple, Any] = {}
    for index, info in fields["storage_data"].items():
        key = _state(index, "MetadataIndex")
        places[_text(key["fqn"]), _numbers(key.get("offset"))] = _state(info, "_StorageInfo")
    nested = fields.get("planner_data") or {}
    for name, entry in fields["state_dict_metadata"].items():
        if not isinstance(name, str):
            raise ValueError("a name that is no text")
        budget.at(f"{path}: {name[:100]}")
        if _name_of(entry) != "TensorStorageMetadata":
            others.append(name)
            continue
        described = _state(entry, "TensorStorageMetadata")
        shape = _numbers(described["size"])
        dtype = described["properties"].state[0].of.removeprefix("torch.")
        if dtype.upper() not in Dtype.__members__ or len(shape) > MAX_DIMS:
            raise Refused(f"{one_line(f'{path}: {name}')}: expected a dtype and dimensions that a trace can hold")
        if len(described["chunks"]) > _MOST_CHUNKS:
            raise ValueError(f"more than {_MOST_CHUNKS} chunks of a tensor")
        chunks = []
        for item in described["chunks"]:
            chunk = _state(item, "ChunkStorageMetadata")
            start, extents = _numbers(chunk["offsets"]), _numbers(chunk["sizes"])
            place = places[name, start]
            if place.get("transform_descriptors"):
                raise Refused(f"{one_line(f'{path}: {name}')}: is stored compressed; expected plain chunks")
            file = member(folder, place["relative_path"], path)
            offset, length = _numbers((place["offset"], place["length"]))
            if offset + length > file.stat().st_size:
                raise Refused(
                    f"{one_line(str(file))}: ends before byte {offset + length}, where a chunk should; truncated"
                )
            chunks.append(_Chunk(start, extents, file, offset, length))
        _check_cover(shape, chunks, f"{path}: {name}")
        keys = tuple(str(key) if type(key) is int else _text(key) for key in nested.get(name, (name,)))
        budget.take(sum(map(len, keys)), f"{path}: {name[:100]}")
        yield Stored(keys, Dtype[dtype.upper()], shape, tuple(chunks), budget)


def _check_cover(shape: tuple[int, ...], chunks: list[_Chunk], where: str) -> None:
    """Refuses chunks that leave gaps, overlap, or lie outside."""
    boxes = [[(at, at + extent) for at, extent in zip(c.start, c.shape, strict=True)] for c in chunks]
    inside = all(len(box) == len(shape) and all(e <= n for (_, e), n in zip(box, shape, strict=True)) for box in boxes)
    whole = sum(math.prod(chunk.shape) for chunk in chunks) == math.prod(shape)
    # Of chunks that fill the tensor by their number of elements, none overlaps another unless there is a gap.
    apart = inside and whole and not _any_overlap(boxes)
    if not apart:
        raise Refused(f"{one_line(where)}: its chunks are not all of a tensor of shape {list(shape)}, each part once")


def _any_overlap(boxes: list[_Box]) -> bool:
    """Whether two have an element in common. Boxes are cut apart where no box is cut, as all are that ranks make, and
    only what is left is looked at pair by pair."""
    left = [[box for box in boxes if all(start < end for start, end in box)]]
    while left:
        group = left.pop()
        parts = next(filter(None, (_cut(group, dim) for dim in range(len(group[0]) if len(group) > 1 else 0))), None)
        if parts:
            left += parts
        elif any(_overlap(a, b) for a, b in itertools.combinations(group, 2)):
            return True
    return False


def _cut(boxes: list[_Box], dim: int) -> list[list[_Box]]:
    """The boxes that lie behind one another along the dimension; nothing where all hang together."""
    parts: list[list[_Box]] = []
    end = 0
    for box in sorted(boxes, key=lambda box: box[dim]):
        if not parts or box[dim][0] >= end:
            parts.append([])
        parts[-1].append(box)
        end = max(end, box[dim][1])
    return parts if len(parts) > 1 else []


def _overlap(a: _Box, b: _Box) -> bool:
    return all(max(s, t) < min(e, f) for (s, e), (t, f) in zip(a, b, strict=True))


def _name_of(value: Any) -> str:
    return value.of.rpartition(".")[2] if isinstance(value, Kept) else type(value).__name__


def _state(value: Any, name: str) -> dict[str, Any]:
    if _name_of(value) != name or not isinstance(value.state, dict):
        raise ValueError(f"a {_name_of(value)} in the place of a {name}")
    return value.state


def _numbers(value: Any) -> tuple[int, ...]:
    """Of a torch.Size or a tuple; of None none."""
    if isinstance(value, Kept):
        (value,) = value.arguments or ((),)
    numbers = tuple(value or ())
    for number in numbers:
        if type(number) is not int or not 0 <= number <= _MOST_EXTENT:
            raise ValueError(f"{shown(number)} in the place of a size")
    return numbers


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} in the place of a name")
    return value
