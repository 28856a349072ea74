"""Megatron-core: the groups of `megatron.core.parallel_state`.

Ranks are in the order tp, cp, dp, pp (its default, `order="tp-cp-ep-dp-pp"`); the coordinates are stated all the
same, so that another order is recorded rightly. Sequence parallelism (`sp`) is an alias, since it uses the ranks of tp;
whether it is on is in the configuration that each module has. Experts are spread over the same ranks in groups of their
own, in the order etp, ep, edp, pp.

Its DistributedOptimizer lays the parameters of a buffer one after the other and gives each data parallel rank an equal
part of that. bf16 parameters have the part's fp32 master as `main_param` (None on ranks that own nothing of them),
and `main_grad` as a view into the buffer, of which the rank's part alone is reduced."""

import functools
import gc
import sys
from types import ModuleType
from typing import Any

import torch

from ..mesh_position import MeshPosition
from ..shares import Share, owned_share

MODULE = "megatron.core.parallel_state"
CHECKPOINTS = [(f"megatron.core.tensor_parallel{module}", "checkpoint") for module in ("", ".random")]
# Clips the masters' gradients in place, which are the parameters' `main_grad` themselves.
CLIPPING = [("megatron.core.optimizer.optimizer", "clip_grad_by_total_norm_fp32")]
# Calls the engine directly, because the output's data is freed by then.
BACKWARD = [("megatron.core.pipeline_parallel.schedules", "custom_backward")]


def find(world_size: int) -> tuple[str, str] | None:
    state = sys.modules[MODULE]
    if not state.model_parallel_is_initialized():
        return None
    sizes = {
        "tp": state.get_tensor_model_parallel_world_size(),
        "cp": state.get_context_parallel_world_size(),
        "dp": state.get_data_parallel_world_size(),
        "pp": state.get_pipeline_model_parallel_world_size(),
    }
    ranks = {
        "tp": state.get_tensor_model_parallel_rank(),
        "cp": state.get_context_parallel_rank(),
        "dp": state.get_data_parallel_rank(),
        "pp": state.get_pipeline_model_parallel_rank(),
    }
    axes = _text(sizes) + (",sp=tp" if _splits_the_sequence() else "")
    expert_sizes, expert_ranks = _experts(state, "world_size"), _experts(state, "rank")
    if expert_sizes and expert_ranks:
        axes += "/" + _text({**expert_sizes, "pp": sizes["pp"]})
        ranks.update(expert_ranks)
    return axes, _text(ranks)


def _experts(state: ModuleType, what: str) -> dict[str, int] | None:
    """Sizes or coordinates in the experts' groups; None before Megatron-core 0.9, which has fewer of these."""
    groups = {"etp": "expert_tensor_parallel", "ep": "expert_model_parallel", "edp": "expert_data_parallel"}
    calls = {axis: getattr(state, f"get_{group}_{what}", None) for axis, group in groups.items()}
    return {axis: call() for axis, call in calls.items()} if all(calls.values()) else None


def _splits_the_sequence() -> bool:
    """Whether all modules say that sequence parallelism is on."""
    kind = getattr(sys.modules.get("megatron.core.model_parallel_config"), "ModelParallelConfig", None)
    if kind is None:
        return False
    modules = (each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module))
    configs = (getattr(module, "config", None) for module in modules)
    return {config.sequence_parallel for config in configs if isinstance(config, kind)} == {True}


def _text(numbers: dict[str, int]) -> str:
    return ",".join(f"{name}={number}" for name, number in numbers.items())


def words(model: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
    """Its DistributedDataParallel averages gradients over dp, unless the loss is summed over tokens. With cp it depends
    on the release how the schedule scales the loss."""
    kind = getattr(sys.modules.get("megatron.core.distributed"), "DistributedDataParallel", None)
    wrappers = [module for module in model.modules() if kind is not None and isinstance(module, kind)]
    if {wrapper.config.calculate_per_token_loss for wrapper in wrappers} != {False}:
        return {}
    sizes = position.sizes()
    return {"loss_scale": "dp"} if sizes.get("dp", 1) > 1 and sizes.get("cp", 1) == 1 else {}


def share(parameter: torch.nn.Parameter) -> Share | None:
    for optimizer in _distributed_optimizers():
        if not any(parameter in buffer.param_index_map for buffer in optimizer.buffers):
            continue
        late = optimizer.ddp_config.overlap_param_gather  # by the forward pre-hooks of the modules that use it
        if parameter not in optimizer.model_param_gbuf_map:
            return owned_share(parameter, 0, 0, None, late)
        part = optimizer._get_model_param_range_map(parameter)["param"]
        return owned_share(parameter, part.start, part.end, _master(optimizer, parameter), late)
    return None


def _master(optimizer: Any, parameter: torch.nn.Parameter) -> torch.Tensor | None:
    master = getattr(parameter, "main_param", None)
    if master is not None:
        return master
    # An fp32 parameter's part is a view of it.
    for group, parts in zip(optimizer.model_fp32_groups, optimizer.shard_fp32_groups, strict=True):
        for whole, part in zip(group, parts, strict=True):
            if whole is parameter:
                return part
    return None


@functools.cache
def _distributed_optimizers() -> list:
    """Those that have parameters. Megatron-core keeps no list of them; they are there when this is first asked, by the
    end of the first backward."""
    kind = getattr(sys.modules.get("megatron.core.optimizer.distrib_optimizer"), "DistributedOptimizer", None)
    if kind is None:
        return []
    return [each for each in gc.get_objects() if isinstance(each, kind) and hasattr(each, "gbuf_ranges")]
