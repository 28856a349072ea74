"""Fine-tunes a tiny Apertus: by one process, or under torchrun by tensor parallelism as transformers applies it."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import nn
from transformers import ApertusConfig, ApertusForCausalLM, AutoModelForCausalLM
from transformers.distributed import DistributedConfig

VOCABULARY = 96


def save_checkpoint(path: str) -> None:
    """Stands for a download. Every rank makes the same, before there is a process group: later rank 0 alone saves."""
    torch.manual_seed(0)
    configuration = ApertusConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    ApertusForCausalLM(configuration).save_pretrained(path)


def load(path: str, ranks: int) -> nn.Module:
    options = {"distributed_config": DistributedConfig(tp_size=ranks)} if ranks > 1 else {}
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options).train()


def tokens() -> torch.Tensor:
    """[2, 16]"""
    return torch.randint(4, VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(7))


def sum_over_ranks(gradient: torch.Tensor) -> torch.Tensor:
    total = gradient.clone()
    dist.all_reduce(total)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reduce", action="store_true", help="sum the forgotten gradients: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as path:
        save_checkpoint(path)
        if ranks > 1:
            dist.init_process_group("gloo")
        model = load(path, ranks)
    if arguments.reduce:
        for layer in model.model.layers:
            for parameter in layer.mlp.act_fn.parameters():
                parameter.register_hook(sum_over_ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(input_ids=tokens(), labels=tokens()).loss.backward()
    optimizer.step()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
