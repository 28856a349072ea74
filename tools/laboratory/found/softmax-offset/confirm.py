"""Without ttrace: the norm that Megatron-core clips by, of an attention whose softmax has an offset for each head, and
that of all its gradients. torchrun --standalone --nproc-per-node 2 confirm.py"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, which looks for a GPU
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.optimizer.clip_grads import get_grad_norm_fp32
from megatron.core.tensor_parallel.layers import param_is_not_tensor_parallel_duplicate
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_config import TransformerConfig

HEADS, SIZE, TOKENS = 8, 4, 6


def main() -> None:
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=1,
        hidden_size=HEADS * SIZE,
        num_attention_heads=HEADS,
        tensor_model_parallel_size=ranks,
        softmax_type="learnable",
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        use_cpu_initialization=True,
    )
    attention = DotProductAttention(config, 1, AttnMaskType.causal, "self")
    own = slice(rank * HEADS // ranks, (rank + 1) * HEADS // ranks)
    with torch.no_grad():
        attention.softmax_offset.copy_(torch.linspace(-1, 1, HEADS)[own])
    whole = torch.randn(3, TOKENS, 1, HEADS, SIZE, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(TOKENS, TOKENS).triu(1).bool()[None, None]
    attention(*whole[:, :, :, own].contiguous(), mask).square().sum().backward()

    # As `get_main_grads_for_grad_norm` of the optimizer: a parameter without a mark counts on the first rank only.
    offset = attention.softmax_offset
    counted = [offset.grad] if param_is_not_tensor_parallel_duplicate(offset) else []
    norm = get_grad_norm_fp32(counted, grad_stats_parallel_group=parallel_state.get_model_parallel_group())
    squares = offset.grad.square().sum()
    of_ranks = [torch.zeros(()) for _ in range(ranks)]
    dist.all_gather(of_ranks, squares)
    if rank == 0:
        each = ", ".join(f"{float(square.sqrt()):.6f}" for square in of_ranks)
        print(f"norm {norm:.6f}, of all heads {float(sum(of_ranks).sqrt()):.6f}; of each rank's {each}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
