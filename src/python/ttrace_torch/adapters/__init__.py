"""What the collector knows about frameworks, a small file each.

An adapter has `MODULE`, the module whose presence in sys.modules means that the program may use the framework. It may
also have
- `find(world_size)`, which returns the mesh's axes and this rank's coordinates as texts ("tp=2,dp=2", "tp=1,dp=0"),
  or None where the framework does not know;
- `groups(model)`, groups of ranks, this one among them, from which factoring.py works out the axes. The name that comes
  first for the same ranks is that of the axis. `model` is None where none has run yet;
- `words(model, position)`, what the framework says of how the program is parallel: an object of the section
  `parallelism` of annotations/README.md, and as `preset` the name of annotations that come with ttrace and fit the
  model, with values of their parameters. Of a key that several adapters know, that is `loss_scale`, all count: they
  are multiplied;
- `CLIPPING`, functions (module, name) that clip gradients by a norm, their third argument, outside torch.nn.utils;
- `BACKWARD`, functions that start backward without torch.autograd.backward, from their first argument;
- `CHECKPOINTS`, functions that run their first argument again in backward;
- `WEIGHT_BACKWARD`, methods of what has a module as `submod`, which compute the gradients of its parameters alone, for
  the micro-batch that is their first argument;
- `STEPS`, steps of optimizers around PyTorch's own, whose first argument is the optimizer, and with them
  `loss_scale(optimizer)`, which is on the gradients before the step, and `gradient_norm(optimizer, loss_scale)`, by
  which it has clipped them, or None;
- `GATHERING`, functions that put the gathered parameters into modules for a forward: fsdp1.py.
A name may be a class's and its method's: "Class.method". All are patched when a model first runs, by when the program
has imported what it uses;
- `share(parameter)`: what this rank has of it (shares.py); None where the framework does not know;
- `record_inside(record_input, record_output)`, which has the framework's functions record what a module neither takes
  nor returns: `record_input(member, function)` names what the function returns as an input of the module in progress.

`is_rehearsal()` says that the framework runs the model just now, in grad mode, to learn its shapes and no more;
`is_by_product(value)` that an object which a module takes or returns holds nothing but what is recorded elsewhere;
`are_experts(module_class)` that what its modules compute inside has rows in an order that correct programs differ in;
`exchanges_tokens(module)` that a module's parameters get gradients of tokens that other ranks have sent there;
`router_choice(module, args, kwargs, result)` is what a router ranks experts by, as members beside its output.
`original_of(tensor)` is the node of autograd that made what `tensor` is a framework's copy of, with the place among its
outputs, or None.
`summed_later_over(parameter, name)` is over what the framework sums the gradient after a backward: a device mesh, or
axes; None where it does not.
`observe_framework_calls(observe)` has frameworks observed that call what a module does other than by calling it."""

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ..imports import after_import
from ..mesh_position import MeshPosition
from ..shares import Share
from . import (
    averaging,
    data_parallel,
    deepspeed,
    deepspeed_groups,
    device_mesh,
    fsdp1,
    lightning,
    megatron,
    megatron_moe,
    pipelining,
    tensor_parallel,
)
from .megatron_moe import Record
from .pipelining import is_rehearsal
from .transformers import is_by_product, mesh_summed_over_later
from .transformers_moe import are_experts, exchanges_tokens, router_choice

if TYPE_CHECKING:  # at run time its presence means that the program uses it: device_mesh.py
    from torch.distributed.device_mesh import DeviceMesh

__all__ = [
    "are_experts",
    "device_mesh",
    "exchanges_tokens",
    "functions_to_patch",
    "in_use",
    "is_by_product",
    "is_rehearsal",
    "observe_framework_calls",
    "original_of",
    "parameter_dtype",
    "record_inside",
    "router_choice",
    "share",
    "summed_later_over",
    "words",
]

# The more specific one first.
_ADAPTERS = (
    megatron,
    megatron_moe,
    device_mesh,
    deepspeed,
    deepspeed_groups,
    fsdp1,
    data_parallel,
    pipelining,
    tensor_parallel,
)
_SHARING = tuple(adapter for adapter in _ADAPTERS if hasattr(adapter, "share"))


def in_use() -> list[ModuleType]:
    """The adapters of the frameworks that the program has imported."""
    return [adapter for adapter in _ADAPTERS if adapter.MODULE in sys.modules]


def words(model: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
    """What the frameworks say of how the program is parallel."""
    said: dict[str, Any] = {}
    for adapter in in_use():
        for key, value in adapter.words(model, position).items() if hasattr(adapter, "words") else ():
            said[key] = averaging.product(said[key], value) if key == "loss_scale" and key in said else value
    return said


def parameter_dtype(model: torch.nn.Module) -> torch.dtype | None:
    """The dtype that a wrapper casts the model's parameters to for what it computes; None where none does."""
    return data_parallel.parameter_dtype(model)


def functions_to_patch(list_name: str) -> Iterator[tuple[ModuleType, ModuleType | type, str]]:
    """Adapter, module or class, and name of each function in the adapters' `list_name`, such as "CLIPPING", that is
    loaded."""
    for adapter in _ADAPTERS:
        for module, name in getattr(adapter, list_name, ()):
            owner = sys.modules.get(module)
            *classes, function = name.split(".")
            for part in classes:
                owner = getattr(owner, part, None)
            if hasattr(owner, function):
                yield adapter, owner, function


def original_of(tensor: torch.Tensor) -> tuple[torch.autograd.graph.Node, int] | None:
    """The node of autograd that made what `tensor` is a framework's copy of, with the place among its outputs."""
    return deepspeed.original_of(tensor) if deepspeed.MODULE in sys.modules else None


def summed_later_over(parameter: torch.nn.Parameter, name: str) -> "DeviceMesh | tuple[str, ...] | None":
    """The device mesh, or the axes of the trace, over which the framework sums the gradient after a backward; None
    where no framework says that it does."""
    axes = megatron.axes_summed_over_later(parameter, name) if megatron.MODULE in sys.modules else ()
    return axes or mesh_summed_over_later(parameter)


def share(parameter: torch.nn.Parameter) -> Share | None:
    """The answer of the adapter that knows."""
    answers = (adapter.share(parameter) for adapter in _SHARING if adapter.MODULE in sys.modules)
    return next((answer for answer in answers if answer is not None), None)


def observe_framework_calls(observe: Callable) -> None:
    """`observe(call, module, args, kwargs)` observes `call(*args, **kwargs)` as a call of `module`."""
    for name in lightning.MODULES:
        after_import(name, functools.partial(lightning.observe_training_steps, observe=observe))


def record_inside(record_input: Record, record_output: Record) -> None:
    """Calls the adapters' functions of that name."""
    for adapter in in_use():
        if hasattr(adapter, "record_inside"):
            adapter.record_inside(record_input, record_output)
