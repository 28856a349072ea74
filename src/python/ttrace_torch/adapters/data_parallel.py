"""PyTorch's data parallel wrappers: DistributedDataParallel, FullyShardedDataParallel and `fully_shard`.

Each averages the gradients of its ranks, unless the program has told it otherwise."""

import math
import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..factoring import Group
from ..mesh_position import MeshPosition
from .adapter import Adapter, Level
from .averaging import Averaging, words_of
from .device_mesh import ranks_of_dims

_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
# Communication hooks of PyTorch, which average.
_AVERAGING_HOOKS = "torch.distributed.algorithms."


class DataParallel(Adapter, module="torch.distributed", level=Level.WRAPPER):
    def groups(self, model: torch.nn.Module | None) -> Iterator[Group]:
        for averaging in averagings(model):
            names = ("dp",) if len(averaging.groups) == 1 else ("dp_shard", "dp_replicate")
            yield from map(Group, names, averaging.groups)

    def words(self, model: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
        return words_of(averagings(model), position)

    def parameter_dtype(self, model: torch.nn.Module) -> torch.dtype | None:
        """The first that a wrapper's mixed precision says."""
        for module in model.modules():
            policies = [getattr(group, "mp_policy", None) for group in _fsdp_groups(module)]
            if isinstance(module, (torch.nn.parallel.DistributedDataParallel, *_fsdp1())):
                policies.append(getattr(module, "mixed_precision", None))
            for policy in policies:
                if getattr(policy, "param_dtype", None) is not None:
                    return policy.param_dtype
        return None


def averagings(model: torch.nn.Module | None) -> Iterator[Averaging]:
    """Of all wrappers in the model, and the one around it, each kind once."""
    seen = []
    for module in (*_around(model), *model.modules()) if model is not None else ():
        for averaging in _of_module(module):
            if averaging not in seen:
                seen.append(averaging)
                yield averaging


def _around(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The wrapper in whose forward the model is called, where the program has called this forward by its name: then the
    wrapper itself is no module that is called."""
    wrapper = getattr(torch.nn.parallel.DistributedDataParallel, "_active_ddp_module", None)
    return [wrapper] if wrapper is not None and wrapper.module is model else []


def _fsdp1() -> tuple[type, ...]:
    kind = getattr(sys.modules.get(_FSDP1), "FullyShardedDataParallel", None)
    return () if kind is None else (kind,)


def _of_module(module: torch.nn.Module) -> Iterator[Averaging]:
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        ranks = _ranks_of(module.process_group)
        hooks = [hook for hook, _ in getattr(module, "_comm_hooks", [])]
        yield Averaging([ranks], len(ranks) if all(map(_averages, hooks)) else None)
    elif isinstance(module, _fsdp1()):
        replicas = getattr(module, "_inter_node_pg", None)
        groups = [_ranks_of(group) for group in (module.process_group, replicas) if group is not None]
        divisor = module._gradient_predivide_factor * module._gradient_postdivide_factor
        hook = getattr(module, "_comm_hook", None)
        yield Averaging(groups, divisor if hook is None or _averages(hook) else None)
    else:
        for group in _fsdp_groups(module):
            info = group.mesh_info
            dims = [getattr(info, name, None) for name in ("shard_mesh_dim", "replicate_mesh_dim")]
            ranks = ranks_of_dims(info.mesh)
            groups = [ranks[dim] for dim in dims if dim is not None]
            if groups:
                yield Averaging(groups, _divisor(group, groups))


def _fsdp_groups(module: torch.nn.Module) -> list[Any]:
    """The parameter groups of a module that `fully_shard` was given."""
    if not hasattr(module, "_get_fsdp_state"):
        return []
    state = module._get_fsdp_state()
    one = getattr(state, "_fsdp_param_group", None) if not hasattr(state, "_fsdp_param_groups") else None
    return getattr(state, "_fsdp_param_groups", [one] if one is not None else [])


def _divisor(group: Any, ranks: list[tuple[int, ...]]) -> float:
    factor = getattr(group, "gradient_divide_factor", getattr(group, "reduce_scatter_divide_factor", None))
    return math.prod(map(len, ranks)) if factor is None else factor


def _averages(hook: Any) -> bool:
    return getattr(hook, "__module__", "").startswith(_AVERAGING_HOOKS)


def _ranks_of(group: Any) -> tuple[int, ...]:
    return tuple(torch.distributed.get_process_group_ranks(group))
