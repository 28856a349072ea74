"""Without ttrace: losses of GPTModel on two ranks that gather their logits, and of these logits by PyTorch.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, which looks for a GPU
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

LABELS, SEQUENCE = 16, 4


def main() -> None:
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=ranks,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
    )
    model = GPTModel(config, get_gpt_layer_local_spec(), LABELS, SEQUENCE, parallel_output=False)
    tokens, labels = torch.randint(0, LABELS, (2, 1, SEQUENCE), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(1, 1, SEQUENCE, SEQUENCE).triu(1).bool()
    inputs = (tokens, torch.arange(SEQUENCE)[None], mask)
    found = model(*inputs, labels=labels)
    right = torch.nn.functional.cross_entropy(model(*inputs).permute(0, 2, 1), labels, reduction="none")
    shares = []
    for losses in (found, right):
        model.zero_grad()
        losses.sum().backward()
        shares.append(model.output_layer.weight.grad.clone())
    off = torch.stack([(shares[0] - shares[1]).square().sum(), shares[1].square().sum()])
    dist.all_reduce(off)
    if rank == 0:
        print(f"losses too large by {', '.join(f'{float(each):.6f}' for each in (found - right).flatten())}")
        print(f"log({ranks}) is {math.log(ranks):.6f}")
        print(f"gradient of the output layer is off by {float((off[0] / off[1]).sqrt()):.4f} of its norm", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
