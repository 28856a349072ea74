"""A stand-in for the accelerator that torchtitan asks for: the CPU, over gloo. Nothing of torchtitan is changed but:

- `torch.cpu` gets the functions that it calls on a device module;
- FlexAttention, whose backward PyTorch lacks on CPU, is computed by scaled_dot_product_attention with the same mask,
  and its mask without torch.compile, which takes minutes here;
- FSDP sums gradients after it has divided them, since gloo cannot multiply on the way."""

import types
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule
from torch.nn.attention.flex_attention import create_block_mask


def stand_in() -> None:
    """Before torchtitan is imported."""
    torch._utils._get_available_device_type = lambda: "cpu"
    torch._utils._get_device_module = lambda _: torch.cpu
    properties = types.SimpleNamespace(total_memory=8 << 30, name="cpu")
    functions = {
        "set_device": lambda *_: None,
        "get_device_name": lambda *_: "cpu",
        "current_device": lambda *_: 0,
        "get_device_properties": lambda *_: properties,
        "reset_peak_memory_stats": lambda *_: None,
        "empty_cache": lambda *_: None,
        "memory_stats": lambda *_: {},
        "device_count": lambda *_: 8,
    }
    for name, function in functions.items():
        setattr(torch.cpu, name, function)
    torch.distributed.set_timeout = lambda *_, **__: None
    set_divide_factor = FSDPModule.set_gradient_divide_factor

    def set_divide_factor_and_sum(module: FSDPModule, factor: float) -> None:
        set_divide_factor(module, factor)
        module.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = set_divide_factor_and_sum


def replace_flex_attention() -> None:
    import torchtitan.models.common.attention as attention

    attention.FlexAttention._compiled_flex_attn = staticmethod(_flex_attention)
    attention._compiled_create_block_mask = create_block_mask


def _flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    block_mask: Any,
    scale: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, Any]:
    batch = torch.arange(query.shape[0]).view(-1, 1, 1, 1)
    head = torch.zeros(1, dtype=torch.long).view(1, 1, 1, 1)
    rows, columns = torch.arange(query.shape[2]).view(1, 1, -1, 1), torch.arange(key.shape[2]).view(1, 1, 1, -1)
    mask = block_mask.mask_mod(batch, head, rows, columns)
    shared = query.shape[1] != key.shape[1]
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=shared)
    return attended, types.SimpleNamespace(lse=None, max_scores=None)
