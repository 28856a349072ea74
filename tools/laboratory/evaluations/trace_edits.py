"""A trace in memory, to be changed and written again as an honest recorder would write it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import h5py
import torch

from ttrace_torch.library import Dtype, Kind, Pass, Recorder, TensorId, TensorView

from .peers import BUILD


@dataclass
class Recorded:
    """One recorded tensor of one rank."""

    tensor_id: TensorId
    dtype: Dtype
    value: torch.Tensor  # in the recorded dtype
    module_class: str = ""
    mapping: str = ""  # JSON; "" where nothing was recorded

    @property
    def key(self) -> tuple[str, str]:
        """Name and kind, which a tolerance belongs to."""
        return self.tensor_id.name, self.tensor_id.kind.text

    def holding(self, value: torch.Tensor) -> "Recorded":
        """The same tensor with another value, which may have another shape and dtype."""
        return replace(self, value=value.contiguous(), dtype=Dtype[str(value.dtype).removeprefix("torch.").upper()])

    def in_another_shape(self) -> "Recorded":
        """Twice as long. Of a stretch of a flattened tensor, which is as long as its mapping says, the first half."""
        mapping = json.loads(self.mapping or "{}")
        if "range" not in mapping.get("fragment", {}):
            return self.holding(torch.cat([self.value, self.value]))
        begin, end = mapping["fragment"]["range"]
        half = (end - begin) // 2
        mapping["fragment"]["range"] = [begin, begin + half]
        return replace(self.holding(self.value[:half]), mapping=json.dumps(mapping))


@dataclass
class Rank:
    attributes: dict
    tensors: list[Recorded] = field(default_factory=list)


def read_rank(path: Path) -> Rank:
    with h5py.File(path) as file:
        rank = Rank(dict(file.attrs))
        rows = file["ttrace/index"][()]
        text, shapes = file["ttrace/text"][()].tobytes(), file["ttrace/shapes"][()]
    data = path.read_bytes()
    for row in sorted(rows, key=lambda row: row["order"]):

        def words(what: str, row=row) -> str:
            return text[int(row[what]) : int(row[what]) + int(row[f"{what}_length"])].decode()

        shape = [int(size) for size in shapes[int(row["shape"]) : int(row["shape"]) + int(row["ndim"])]]
        dtype, begin = Dtype(row["dtype"]), int(row["offset"])
        content = bytearray(data[begin : begin + int(row["bytes"])])
        torch_dtype = getattr(torch, dtype.text)
        value = torch.frombuffer(content, dtype=torch_dtype) if content else torch.empty(0, dtype=torch_dtype)
        tensor_id = TensorId(
            int(row["iteration"]),
            int(row["microbatch"]),
            int(row["chunk"]),
            Pass(row["pass"]),
            Kind(row["kind"]),
            words("name"),
        )
        rank.tensors.append(Recorded(tensor_id, dtype, value.reshape(shape), words("module"), words("mapping")))
    return rank


def read_trace(trace: Path) -> list[Rank]:
    return [read_rank(path) for path in sorted(trace.glob("rank-*.h5"))]


def axes_text(attributes: dict) -> str:
    """As `ttrace collect --axes` takes it."""
    factorings = [json.loads(attributes["axes"]), *json.loads(attributes.get("views", "[]"))]
    aliases = [f"{alias}={axis}" for alias, axis in json.loads(attributes["aliases"]).items()]
    words = [[f"{axis}={size}" for axis, size in factoring] for factoring in factorings]
    words[0] += aliases
    return "/".join(",".join(factoring) for factoring in words)


def write_rank(rank: Rank, trace: Path) -> None:
    attributes = rank.attributes
    coordinates = json.loads(attributes["coordinates"])
    recorder = Recorder(
        str(BUILD / "lib" / "libttrace.so"),
        str(trace),
        run_id=attributes["run_id"],
        rank=int(attributes["rank"]),
        world_size=int(attributes["world_size"]),
        axes=axes_text(attributes),
        coordinates=",".join(f"{axis}={at}" for axis, at in coordinates.items()),
    )
    recorder.describe(attributes["compute_dtype"], attributes["provenance"])
    for tensor in rank.tensors:
        value = tensor.value.contiguous()
        view = TensorView(value.data_ptr(), tensor.dtype, value.shape)
        recorder.record(tensor.tensor_id, view, module_class=tensor.module_class, mapping=tensor.mapping)
    recorder.close(True)


def write_edited(trace: Path, edited: dict[int, Rank], output: Path) -> None:
    """`trace` with other ranks in place of some. The files of the rest are copied: to link one is to change it, which a
    check that reads it would notice."""
    output.mkdir(parents=True)
    for path in sorted(trace.glob("rank-*.h5")):
        if int(path.stem.removeprefix("rank-")) not in edited:
            shutil.copyfile(path, output / path.name)
    for rank in edited.values():
        write_rank(rank, output)


def copy_trace(trace: Path, output: Path) -> None:
    """Every file of its own, to be changed in place."""
    shutil.copytree(trace, output)


def edit_each(
    ranks: list[Rank], chosen: Callable[[int, Recorded], bool], edit: Callable[[int, Recorded], Recorded | None]
) -> dict[int, Rank]:
    """By rank, those that hold a chosen tensor, with what `edit` makes of it; None leaves it out."""
    edited = {}
    for number, rank in enumerate(ranks):
        if not any(chosen(number, tensor) for tensor in rank.tensors):
            continue
        tensors = []
        for tensor in rank.tensors:
            changed = edit(number, tensor) if chosen(number, tensor) else tensor
            if changed is not None:
                tensors.append(changed)
        edited[number] = Rank(rank.attributes, tensors)
    return edited
