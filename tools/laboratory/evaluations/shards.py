"""The shards of one tensor, taken out of a trace, and put into a trace of their own."""

from dataclasses import dataclass
from pathlib import Path

import torch

from ttrace_torch.library import Kind, Pass, TensorId

from .trace_edits import Rank, read_trace, write_rank


@dataclass
class Shards:
    """`values`: of each rank, in the recorded dtype."""

    ranks: list[Rank]  # each holds this one tensor

    @property
    def values(self) -> list[torch.Tensor]:
        return [rank.tensors[0].value for rank in self.ranks]


def read_shards(trace: Path, name: str, kind: str, microbatch: int) -> Shards:
    """Of iteration 0, the forward pass. Every rank must hold the tensor once."""
    tensor_id = TensorId(0, microbatch, 0, Pass.FORWARD, Kind[kind.upper()], name)
    ranks = []
    for rank in read_trace(trace):
        (tensor,) = [tensor for tensor in rank.tensors if tensor.tensor_id == tensor_id]
        ranks.append(Rank(rank.attributes, [tensor]))
    assert ranks, f"{trace}: no rank"
    return Shards(ranks)


def write_shards(shards: Shards, values: list[torch.Tensor], trace: Path) -> None:
    """A trace with the attributes of the one that `shards` come from."""
    for rank, value in zip(shards.ranks, values, strict=True):
        write_rank(Rank(rank.attributes, [rank.tensors[0].holding(value)]), trace)
