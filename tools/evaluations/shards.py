"""The shards of one tensor, taken out of a trace, and put into a trace of their own."""

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import torch

from ttrace_torch import library

from .peers import BUILD

DTYPES = {number: getattr(torch, name) for name, number in library.DTYPES.items()}
KINDS = [
    "",
    "input",
    "output",
    "grad_output",
    "grad_input",
    "param",
    "param_grad",
    "main_grad",
    "param_delta",
    "param_after",
    "scalar",
]


@dataclass
class Shards:
    """`values`: of each rank, in the recorded dtype. The rest is the same in all."""

    attributes: dict
    iteration: int
    microbatch: int
    kind: int
    name: str
    dtype: int
    values: list[torch.Tensor]
    mappings: list[str | None]  # of each rank, JSON


def read_shards(trace: Path, name: str, kind: str, microbatch: int) -> Shards:
    """Of iteration 0, the forward pass. Every rank must hold the tensor once."""
    found = None
    for path in sorted(trace.glob("rank-*.h5")):
        with h5py.File(path) as file:
            attributes, rows = dict(file.attrs), file["ttrace/index"][()]
            text, shapes = file["ttrace/text"][()].tobytes(), file["ttrace/shapes"][()]
        (row,) = [
            row
            for row in rows
            if row["kind"] == KINDS.index(kind)
            and row["microbatch"] == microbatch
            and row["pass"] == library.FORWARD
            and row["iteration"] == 0
            and text[row["name"] : row["name"] + row["name_length"]] == name.encode()
        ]
        with open(path, "rb") as file:
            file.seek(int(row["offset"]))
            data = bytearray(file.read(int(row["bytes"])))
        shape = [int(size) for size in shapes[row["shape"] : row["shape"] + row["ndim"]]]
        values = torch.frombuffer(data, dtype=DTYPES[int(row["dtype"])]).reshape(shape)
        mapping = text[row["mapping"] : row["mapping"] + row["mapping_length"]].decode() or None
        if found is None:
            found = Shards(attributes, 0, microbatch, int(row["kind"]), name, int(row["dtype"]), [], [])
        found.values.append(values)
        found.mappings.append(mapping)
    assert found is not None, f"{trace}: no rank"
    return found


def write_shards(shards: Shards, values: list[torch.Tensor], trace: Path) -> None:
    """A trace with the attributes of the one that `shards` come from."""
    for rank, (value, mapping) in enumerate(zip(values, shards.mappings)):
        run_id, dtype = shards.attributes["run_id"], shards.attributes["compute_dtype"]
        recorder = library.Recorder(
            str(BUILD / "lib" / "libttrace.so"),
            str(trace),
            run_id,
            rank,
            len(values),
            axes_text(shards.attributes),
            "",
            "",
        )
        recorder.describe(dtype, None)
        value = value.contiguous()
        recorder.record(
            shards.iteration,
            shards.microbatch,
            0,
            library.FORWARD,
            shards.kind,
            shards.name,
            "",
            value.data_ptr(),
            shards.dtype,
            value.shape,
            None,
            mapping,
        )
        recorder.close(True)


def axes_text(attributes: dict) -> str:
    """As `ttrace collect --axes` takes it."""
    words = [f"{axis}={size}" for axis, size in json.loads(attributes["axes"])]
    return ",".join(words + [f"{alias}={axis}" for alias, axis in json.loads(attributes["aliases"]).items()])
