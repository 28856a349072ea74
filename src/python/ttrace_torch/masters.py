"""The parameters that the optimizers of this rank update, wherever they keep them."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from . import adapters
from .adapters import Adapter
from .clock import Chunk
from .collector import Collector
from .library import Kind
from .shares import Range, Share, attributes_share


class TrainedParameter(NamedTuple):
    chunk: int
    name: str
    share: Share


def trained_parameters(chunk: Chunk) -> Iterator[TrainedParameter]:
    for name, parameter in chunk.parameters():
        share = adapters.first(Adapter.share, parameter) or attributes_share(parameter)
        yield TrainedParameter(chunk.number, name, share)
    for name, share in chunk.flattened_parameters():
        yield TrainedParameter(chunk.number, name, share)


def record_part(
    collector: Collector, trained: TrainedParameter, kind: Kind, tensor: torch.Tensor, part: Range | None
) -> None:
    """`tensor` has the elements `part` of the parameter; where that is empty, nothing is recorded."""
    tensor_id = collector.clock.parameter_id(trained.chunk, kind, trained.name)
    if part is None:
        collector.record(tensor_id, tensor)
    elif part.end > part.begin:
        collector.record(tensor_id, tensor.reshape(-1), mapping=part.mapping())
