"""Hugging Face transformers: a model that trains hands its layers a cache of keys and values, which each attention
fills and reads within its own call. No tensor goes by it from one module to another that is not recorded.

Where its tensor parallelism gives each rank some heads and all of a norm, the norm's gradient is summed over the ranks
by a hook, after it was accumulated: until then a rank has its own heads' part of it."""

import inspect
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:  # at run time its presence means that the program uses it: device_mesh.py
    from torch.distributed.device_mesh import DeviceMesh

MODULE = "transformers.cache_utils"
_SUMMING_HOOK = "ReplicatedWithGradAllReduce.install_forward.<locals>._all_reduce_grad"


def is_by_product(value: Any) -> bool:
    """Whether what `value` holds is made and used within one module."""
    return any(base.__module__ == MODULE and base.__name__ == "Cache" for base in type(value).__mro__)


def mesh_summed_over_later(parameter: torch.nn.Parameter) -> "DeviceMesh | None":
    """The mesh over whose ranks the gradient of `parameter` is summed after a backward; None where it is not."""
    hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
    for hook in hooks.values() if hooks else ():
        if getattr(hook, "__qualname__", "") == _SUMMING_HOOK:
            return inspect.getclosurevars(hook).nonlocals["mesh"]
    return None
