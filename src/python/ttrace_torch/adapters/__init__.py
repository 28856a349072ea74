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
from typing import Optional, Tuple

from . import device_mesh, megatron
from .pipelining import is_rehearsal  # noqa: F401

ALL = (megatron, device_mesh)


def loaded(sort: str) -> Iterator[tuple[object, str]]:
    """The (module, function name) of that sort, "CLIPPING" or "BACKWARD", whose modules the program has imported."""
    for adapter in ALL:
        for module, name in getattr(adapter, sort, ()):
            if hasattr(sys.modules.get(module), name):
                yield sys.modules[module], name


def owned_range(parameter) -> tuple | None:
    """The first adapter's answer."""
    for adapter in ALL:
        if adapter.MODULE in sys.modules and hasattr(adapter, "owned_range"):
            return adapter.owned_range(parameter)
    return None
