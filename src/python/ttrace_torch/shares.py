"""What a rank has of a parameter, and what its optimizer does with that: the whole parameter in the plain case, a range
of the elements of the flattened one under FSDP1 and ZeRO, with or without a master in higher precision.

Two attributes of Megatron-LM's are known: a parameter's `main_grad`, and its fp32 master `main_param`. A ZeRO optimizer
updates, on each rank, only a range. A program says so with the parameter's attribute `main_shard_range`, (begin, end);
`main_grad` and `main_param` then are those elements, in one dimension. Frameworks that have no such attribute are asked
by their adapters."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Range:
    """Elements [begin, end) of a flattened tensor of shape `whole`."""

    whole: Sequence[int]
    begin: int
    end: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """These elements of a tensor that is whole, or has them alone already."""
        if tensor.numel() == torch.Size(self.whole).numel():
            tensor = tensor.reshape(-1)[self.begin : self.end]
        return tensor

    def mapping(self) -> str:
        """JSON, as in src/base/mapping.h."""
        return json.dumps({"fragment": {"whole": list(self.whole), "range": [self.begin, self.end]}})


@dataclass(frozen=True)
class Share:
    """Of one parameter. A range is None where it is the whole parameter, in its shape."""

    held: torch.Tensor  # what the rank keeps of it for the model
    held_range: Range | None
    master: torch.Tensor  # the owned elements as the optimizer updates them; any tensor where there are none
    owned: Range | None
    stepped: torch.Tensor  # as the optimizer's groups list it; the master may be a part of that
    gradient: Callable[[], torch.Tensor | None]  # of the owned elements, as the optimizer will use it
    is_gathered_late: bool = False  # what other ranks own arrives after the step, when the parameter is next used

    def owns_any(self) -> bool:
        """Whether this rank's optimizer updates elements of the parameter."""
        return self.owned is None or self.owned.end > self.owned.begin


def attributes_share(parameter: torch.nn.Parameter) -> Share:
    """As the parameter's attributes say it."""
    found, master = getattr(parameter, "main_shard_range", None), getattr(parameter, "main_param", None)
    if found is not None:
        return owned_share(parameter, *found, master)
    if not isinstance(master, torch.Tensor):
        master = parameter
    return Share(parameter, None, master, None, master, lambda: _main_grad(parameter))


def owned_share(
    parameter: torch.nn.Parameter, begin: int, end: int, master: torch.Tensor | None, is_gathered_late: bool = False
) -> Share:
    """Where every rank holds the whole and updates the elements [begin, end) of it as `master`."""
    owned = Range(tuple(parameter.shape), begin, end)
    master = master if isinstance(master, torch.Tensor) else parameter

    def gradient() -> torch.Tensor | None:
        whole = _main_grad(parameter)
        return None if whole is None else owned.of(whole)

    return Share(parameter, None, master, owned, master, gradient, is_gathered_late)


def _main_grad(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    main_grad = getattr(parameter, "main_grad", None)
    if isinstance(main_grad, torch.Tensor):
        return main_grad
    master_grad = getattr(getattr(parameter, "main_param", None), "grad", None)
    return parameter.grad if master_grad is None else master_grad
