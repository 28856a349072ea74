"""FullyShardedDataParallel, the first one: flattened parameters, of each of which a rank keeps one stretch.

Its FlatParameter holds several parameters one after the other, with padding between them and behind, and each rank has
an equal part of that. Between two calls of the model its own parameters are either gone (`use_orig_params=False`) or
views of what this rank has of them. The forward uses views of the gathered whole, which are tensors and no parameters:
their gradient is that of a micro-batch, before any reduction."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..shares import Range, Share
from .adapter import Adapter, Clipping, Function, Level

_MODULE = "torch.distributed.fsdp.fully_sharded_data_parallel"


class FSDP1(Adapter, module=_MODULE, level=Level.WRAPPER):
    clipping = (Clipping(_MODULE, "FullyShardedDataParallel.clip_grad_norm_", norm="result"),)
    gathering = (Function("torch.distributed.fsdp._flat_param", "FlatParamHandle._use_unsharded_views"),)

    def is_flattened(self, parameter: torch.nn.Parameter) -> bool:
        return getattr(parameter, "_fsdp_flattened", False)

    def flattened_parameters(self, root: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, Share]]:
        for module in root.modules():
            handle = vars(module).get("_handle")  # to look for an attribute that a module has not takes long
            flat = getattr(handle, "flat_param", None)
            if not getattr(flat, "_is_flat_param", False):
                continue
            shares = {}
            for index, (name, owner, _) in enumerate(flat._param_infos):
                shares[owner, name] = _share(handle, index)
                yield owner, name, shares[owner, name]
            for name, owner, _, of_name, of_owner, _ in flat._shared_param_infos:
                yield owner, name, shares[of_owner, of_name]

    def gathered_parameters(self, handle: Any) -> Iterator[tuple[list[tuple[torch.nn.Module, str]], torch.Tensor]]:
        if handle._training_state.name != "FORWARD":
            return
        flat = handle.flat_param
        for index, (name, owner, _) in enumerate(flat._param_infos):
            if flat._params is not None and not flat._params[index].requires_grad:
                continue  # the flat one has a gradient there all the same
            infos = flat._shared_param_infos
            shared = [(other, of) for of, other, _, *primary in infos if primary[:2] == [name, owner]]
            yield [(owner, name), *shared], getattr(owner, name)


def _share(handle: Any, index: int) -> Share:
    flat = handle.flat_param
    place, shape = flat._shard_param_infos[index], tuple(flat._shapes[index])
    offset, size = (place.offset_in_shard, place.numel_in_shard) if place.in_shard else (0, 0)
    begin = place.intra_param_start_idx if place.in_shard else 0
    part = Range(shape, begin, begin + size)
    own = None if flat._params is None else flat._params[index]
    if own is not None and own.numel() == size:
        held = own.detach().reshape(-1)  # the program may have put other data there, which FSDP goes on with
    else:
        held = getattr(flat, "_local_shard", flat).detach()[offset : offset + size]
    return Share(held, part, held, part, flat if own is None else own, _gradient(flat, own, offset, size))


def _gradient(
    flat: torch.nn.Parameter, own: torch.nn.Parameter | None, offset: int, size: int
) -> Callable[[], torch.Tensor | None]:
    def gradient() -> torch.Tensor | None:
        if own is not None:
            return None if own.grad is None else own.grad.reshape(-1)
        return None if flat.grad is None else flat.grad[offset : offset + size]

    return gradient
