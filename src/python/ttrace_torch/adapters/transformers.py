"""Hugging Face transformers: a model that trains hands its layers a cache of keys and values, which each attention
fills and reads within its own call. No tensor goes by it from one module to another that is not recorded.

Where its tensor parallelism gives each rank some heads and all of a norm, the norm's gradient is summed over the ranks
by a hook, after it was accumulated: until then a rank has its own heads' part of it."""

import inspect
from typing import TYPE_CHECKING, Any

import torch

from .adapter import Adapter

if TYPE_CHECKING:  # at run time its presence means that the program uses it: device_mesh.py
    from torch.distributed.device_mesh import DeviceMesh

_CACHES = "transformers.cache_utils"
_SUMMING_HOOK = "ReplicatedWithGradAllReduce.install_forward.<locals>._all_reduce_grad"


class Transformers(Adapter, module="transformers"):
    def is_by_product(self, value: Any) -> bool:
        return any(base.__module__ == _CACHES and base.__name__ == "Cache" for base in type(value).__mro__)

    def summed_later_over(self, parameter: torch.nn.Parameter, name: str) -> "DeviceMesh | None":
        hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
        for hook in hooks.values() if hooks else ():
            if getattr(hook, "__qualname__", "") == _SUMMING_HOOK:
                return inspect.getclosurevars(hook).nonlocals["mesh"]
        return None
