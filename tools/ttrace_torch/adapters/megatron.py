"""Megatron-core: the groups of `megatron.core.parallel_state`.

Ranks are in the order tp, cp, dp, pp (its default, `order="tp-cp-ep-dp-pp"`); the coordinates are stated all the
same, so that another order is recorded rightly. Sequence parallelism (`sp`) is an alias: it uses the ranks of tp."""

import sys
from typing import Optional, Tuple

MODULE = "megatron.core.parallel_state"
# Clips the masters' gradients in place, which are the parameters' `main_grad` themselves.
CLIPPING = [("megatron.core.optimizer.optimizer", "clip_grad_by_total_norm_fp32")]
# Calls the engine directly, because the output's data is freed by then.
BACKWARD = [("megatron.core.pipeline_parallel.schedules", "custom_backward")]


def find(world_size: int) -> Optional[Tuple[str, str]]:
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
    axes = ",".join(f"{name}={size}" for name, size in sizes.items())
    return axes + ",sp=tp", ",".join(f"{name}={rank}" for name, rank in ranks.items())
