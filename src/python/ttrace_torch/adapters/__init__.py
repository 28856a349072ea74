"""What the collector knows about frameworks, a small file each.

An adapter has `MODULE`, the module whose presence in sys.modules means that the program uses the framework, and
`find(world_size)`, which returns the mesh's axes and this rank's coordinates as texts ("tp=2,dp=2", "tp=1,dp=0"),
or None where the framework does not know. It may also have
- `CLIPPING`, functions (module, name) that clip gradients by a norm, their third argument, outside torch.nn.utils;
- `BACKWARD`, functions that start backward without torch.autograd.backward, from their first argument.
These are patched when a model first runs, by when the program has imported what it uses;
- `owned_range(parameter)`: begin, end (of the flattened parameter) and the tensor of those elements that a ZeRO
  optimizer updates on this rank, None where it has no part in the parameter.

`is_rehearsal()` says that the framework runs the model just now, in grad mode, to learn its shapes and no more."""

import sys
from collections.abc import Iterator
from types import ModuleType

import torch

from . import device_mesh, megatron
from .pipelining import is_rehearsal

__all__ = ["functions_to_patch", "in_use", "is_rehearsal", "owned_range"]


def in_use() -> list[ModuleType]:
    """The adapters of the frameworks that the program has imported, the more specific one first."""
    return [adapter for adapter in (megatron, device_mesh) if adapter.MODULE in sys.modules]


def functions_to_patch(list_name: str) -> Iterator[tuple[ModuleType, str]]:
    """Module and name of each function in the adapters' `list_name`, "CLIPPING" or "BACKWARD", that is loaded."""
    for adapter in (megatron, device_mesh):
        for module, name in getattr(adapter, list_name, ()):
            if hasattr(sys.modules.get(module), name):
                yield sys.modules[module], name


def owned_range(parameter: torch.nn.Parameter) -> tuple[int, int, torch.Tensor | None] | None:
    """The first adapter's answer."""
    for adapter in in_use():
        if hasattr(adapter, "owned_range"):
            return adapter.owned_range(parameter)
    return None
