"""What the optimizer of this rank updates of a parameter: its master, the gradient that it uses, and under ZeRO the
range of elements that this rank owns.

Two attributes of Megatron-LM's are known: a parameter's `main_grad`, and its fp32 master `main_param`. A ZeRO optimizer
updates, on each rank, only a range of the elements of a flattened parameter. A program says so with the parameter's
attribute `main_shard_range`, (begin, end); `main_grad` and `main_param` then are those elements, in one dimension.
Megatron-core's optimizer has no such attribute and is asked (adapters/megatron.py)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from . import adapters
from .clock import Chunk


@dataclass(frozen=True)
class OwnedRange:
    begin: int
    end: int
    master: torch.Tensor | None  # those elements as the optimizer updates them; None where there are none

    def of(self, parameter: torch.nn.Parameter, gradient: torch.Tensor) -> torch.Tensor:
        """The owned elements of a gradient that is whole, or has them alone already."""
        if gradient.numel() == parameter.numel():
            gradient = gradient.reshape(-1)[self.begin : self.end]
        return gradient

    def mapping(self, parameter: torch.nn.Parameter) -> str:
        """JSON, as in include/ttrace/mapping.h."""
        return json.dumps({"fragment": {"whole": list(parameter.shape), "range": [self.begin, self.end]}})


class TrainedParameter(NamedTuple):
    chunk: int
    name: str
    parameter: torch.nn.Parameter
    master: torch.Tensor  # what the optimizer updates; the parameter itself where it has no other
    owned: OwnedRange | None  # None: the whole parameter

    def main_grad(self) -> torch.Tensor | None:
        """The gradient that the optimizer uses, of what this rank owns."""
        gradient = _main_grad(self.parameter)
        return gradient if gradient is None or self.owned is None else self.owned.of(self.parameter, gradient)


def trained_parameters(chunk: Chunk) -> Iterator[TrainedParameter]:
    for name, parameter in chunk.parameters():
        owned = _owned_range(parameter)
        master = getattr(parameter, "main_param", None) if owned is None else owned.master
        if not isinstance(master, torch.Tensor):
            master = parameter
        yield TrainedParameter(chunk.number, name, parameter, master, owned)


def _owned_range(parameter: torch.nn.Parameter) -> OwnedRange | None:
    """What this rank updates of `parameter`; None where that is all of it."""
    found = getattr(parameter, "main_shard_range", None)
    if found is not None:
        return OwnedRange(*found, getattr(parameter, "main_param", None))
    found = adapters.owned_range(parameter)
    return OwnedRange(*found) if found is not None else None


def _main_grad(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    main_grad = getattr(parameter, "main_grad", None)
    if isinstance(main_grad, torch.Tensor):
        return main_grad
    master_grad = getattr(getattr(parameter, "main_param", None), "grad", None)
    return parameter.grad if master_grad is None else master_grad
