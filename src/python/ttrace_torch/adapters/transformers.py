"""Hugging Face transformers: a model that trains hands its layers a cache of keys and values, which each attention
fills and reads within its own call. No tensor goes by it from one module to another that is not recorded.

Where its tensor parallelism gives each rank some heads and all of a norm, the norm's gradient is summed over the ranks
by a hook, after it was accumulated: until then a rank has its own heads' part of it.

The decorator `use_experts_implementation` puts its own forward into a class of experts. What is computed inside has a
row for each choice of a token, in the order of the experts or of the choices, as the implementation goes; under expert
parallelism there are rows of other ranks' tokens, and rows that count for nothing. So correct programs differ there."""

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:  # at run time its presence means that the program uses it: device_mesh.py
    from torch.distributed.device_mesh import DeviceMesh

MODULE = "transformers.cache_utils"
_EXPERTS = "transformers.integrations.moe"
_SUMMING_HOOK = "ReplicatedWithGradAllReduce.install_forward.<locals>._all_reduce_grad"


def is_by_product(value: Any) -> bool:
    """Whether what `value` holds is made and used within one module."""
    return any(base.__module__ == MODULE and base.__name__ == "Cache" for base in type(value).__mro__)


@functools.cache
def are_experts(module_class: type) -> bool:
    """Whether modules of the class compute rows in an order of their own."""
    forwards = (vars(base).get("forward") for base in module_class.__mro__)
    return any(getattr(forward, "__globals__", {}).get("__name__") == _EXPERTS for forward in forwards)


def exchanges_tokens(module: torch.nn.Module) -> bool:
    """Whether `module` computes, under expert parallelism, on tokens that other ranks have sent there."""
    if not are_experts(type(module)) or "forward" not in vars(module):
        return False
    implementation = inspect.getclosurevars(module.forward).nonlocals.get("implementation")
    return not getattr(implementation, "shares_batch", True)


def summed_later_over(parameter: torch.nn.Parameter) -> "DeviceMesh | None":
    """The mesh over whose ranks the gradient of `parameter` is summed after a backward; None where it is not."""
    for hook in (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values():
        if getattr(hook, "__qualname__", "") == _SUMMING_HOOK:
            return inspect.getclosurevars(hook).nonlocals["mesh"]
    return None
