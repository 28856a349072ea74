"""Fine-tunes a tiny Qwen3 with gradient accumulation: by one process, or under torchrun by tensor parallelism as
transformers applies it."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.distributed import DistributedConfig

VOCABULARY = 96


def save_checkpoint(path: str) -> None:
    """Stands for a download. Every rank makes the same, before there is a process group: later rank 0 alone saves."""
    torch.manual_seed(0)
    configuration = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
    )
    Qwen3ForCausalLM(configuration).save_pretrained(path)


def load(path: str, ranks: int) -> nn.Module:
    options = {"distributed_config": DistributedConfig(tp_size=ranks)} if ranks > 1 else {}
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options).train()


def micro_batches(count: int) -> torch.Tensor:
    """[count, 2, 16]"""
    return torch.randint(VOCABULARY, (count, 2, 16), generator=torch.Generator().manual_seed(7))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--own-sums", action="store_true", help="accumulate outside of .grad: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as path:
        save_checkpoint(path)
        if ranks > 1:
            dist.init_process_group("gloo")
        model = load(path, ranks)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    sums = [torch.zeros_like(parameter) for parameter in parameters]
    for tokens in micro_batches(arguments.micro_batches):
        (model(input_ids=tokens, labels=tokens).loss / arguments.micro_batches).backward()
        if arguments.own_sums:
            for parameter, total in zip(parameters, sums, strict=True):
                total += parameter.grad
                parameter.grad = None
    if arguments.own_sums:
        for parameter, total in zip(parameters, sums, strict=True):
            parameter.grad = total
    optimizer.step()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
