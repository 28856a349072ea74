"""The shards of one tensor, taken out of a trace, and put into a trace of their own."""

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import torch

from ttrace_torch.library import Dtype, Kind, Pass, Recorder, TensorId, TensorView

from .peers import BUILD


@dataclass
class Shards:
    """`values`: of each rank, in the recorded dtype. The rest is the same in all."""

    attributes: dict
    tensor_id: TensorId
    dtype: Dtype
    values: list[torch.Tensor]
    mappings: list[str]  # of each rank, JSON; "" where nothing was recorded


def read_shards(trace: Path, name: str, kind: str, microbatch: int) -> Shards:
    """Of iteration 0, the forward pass. Every rank must hold the tensor once."""
    tensor_id = TensorId(0, microbatch, 0, Pass.FORWARD, Kind[kind.upper()], name)
    found = None
    for path in sorted(trace.glob("rank-*.h5")):
        with h5py.File(path) as file:
            attributes, rows = dict(file.attrs), file["ttrace/index"][()]
            text, shapes = file["ttrace/text"][()].tobytes(), file["ttrace/shapes"][()]
        (row,) = [
            row
            for row in rows
            if row["kind"] == tensor_id.kind
            and row["microbatch"] == microbatch
            and row["pass"] == tensor_id.pass_
            and row["iteration"] == tensor_id.iteration
            and text[row["name"] : row["name"] + row["name_length"]] == name.encode()
        ]
        with open(path, "rb") as file:
            file.seek(int(row["offset"]))
            data = bytearray(file.read(int(row["bytes"])))
        shape = [int(size) for size in shapes[row["shape"] : row["shape"] + row["ndim"]]]
        dtype = Dtype(row["dtype"])
        values = torch.frombuffer(data, dtype=getattr(torch, dtype.text)).reshape(shape)
        mapping = text[row["mapping"] : row["mapping"] + row["mapping_length"]].decode()
        if found is None:
            found = Shards(attributes, tensor_id, dtype, [], [])
        found.values.append(values)
        found.mappings.append(mapping)
    assert found is not None, f"{trace}: no rank"
    return found


def write_shards(shards: Shards, values: list[torch.Tensor], trace: Path) -> None:
    """A trace with the attributes of the one that `shards` come from."""
    for rank, (value, mapping) in enumerate(zip(values, shards.mappings, strict=True)):
        recorder = Recorder(
            str(BUILD / "lib" / "libttrace.so"),
            str(trace),
            run_id=shards.attributes["run_id"],
            rank=rank,
            world_size=len(values),
            axes=axes_text(shards.attributes),
        )
        recorder.describe(shards.attributes["compute_dtype"], "")
        value = value.contiguous()
        view = TensorView(value.data_ptr(), shards.dtype, value.shape)
        recorder.record(shards.tensor_id, view, mapping=mapping)
        recorder.close(True)


def axes_text(attributes: dict) -> str:
    """As `ttrace collect --axes` takes it."""
    words = [f"{axis}={size}" for axis, size in json.loads(attributes["axes"])]
    return ",".join(words + [f"{alias}={axis}" for alias, axis in json.loads(attributes["aliases"]).items()])
