"""ZeRO: an optimizer that updates, on each rank, only a range of the elements of a flattened parameter.

A program says so with a parameter's attribute `main_shard_range`, (begin, end), beside `main_grad` and `main_param`,
which then are those elements, in one dimension. Megatron-core's optimizer is asked (adapters/megatron.py)."""

import json
from dataclasses import dataclass

import torch

from . import adapters


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
        return json.dumps({"fragment": {"whole": list(parameter.shape), "range": [self.begin, self.end]}})


def owned_range(parameter: torch.nn.Parameter) -> OwnedRange | None:
    """What this rank updates of `parameter`; None where that is all of it."""
    found = getattr(parameter, "main_shard_range", None)
    if found is not None:
        return OwnedRange(*found, getattr(parameter, "main_param", None))
    found = adapters.owned_range(parameter)
    return OwnedRange(*found) if found is not None else None
