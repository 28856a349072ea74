"""Trains a Llama of Hugging Face transformers in a plain loop, on the data of another framework's program: `megatron`
(port_megatron.py) or `torchtitan` (port_torchtitan.py); `megatron-moe` is a Mixtral. One process, or with --tp under
torchrun."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from checkpoints import make
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig


def megatron_batches() -> list[tuple[Tensor, Tensor]]:
    """As `batches` of ../megatron/train.py: tokens and labels, [2, 32] each; -100 where a token does not count."""
    generator = torch.Generator().manual_seed(1000)
    tokens = torch.randint(0, 128, (4, 2, 33), generator=generator)
    counts = torch.rand((4, 2, 32), generator=generator) < 0.9
    labels = tokens[:, :, 1:].masked_fill(~counts, -100)
    return list(zip(tokens[:, :, :-1].contiguous(), labels, strict=True))


def torchtitan_batches() -> list[tuple[Tensor, Tensor]]:
    """As torchtitan reads the text of ../torchtitan/train.py: [2, 64] each."""
    at = torch.arange(63)
    lines = [(row * row + 7 * row * at + at * at) % 28 + 2 for row in range(8)]
    tokens = torch.stack([torch.cat([torch.tensor([0]), line, torch.tensor([1])]) for line in lines])
    return [(pair[:, :-1].contiguous(), pair[:, 1:].contiguous()) for pair in tokens.view(4, 2, 65)]


def mean_of_each(model: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
    """The mean over the micro-batch's tokens that count."""
    return model(input_ids=tokens, labels=labels, shift_labels=labels).loss / 4


PROGRAMS = {
    "megatron": (megatron_batches, {"lr": 1e-3, "weight_decay": 0.01}),
    "megatron-moe": (megatron_batches, {"lr": 1e-3, "weight_decay": 0.01}),
    "torchtitan": (torchtitan_batches, {"lr": 8e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--like", choices=PROGRAMS, default="megatron")
    parser.add_argument("--tp", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options = {}
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        options = {"distributed_config": DistributedConfig(tp_size=arguments.tp)}
    batches, adam = PROGRAMS[arguments.like]
    model = AutoModelForCausalLM.from_pretrained(make(arguments.like), dtype=torch.float32, **options)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), **adam)
    for tokens, labels in batches():
        loss = mean_of_each(model, tokens, labels)
        loss.backward()
        print(f"loss {loss.item():.9f}", flush=True)
    if arguments.tp == 1:  # it refuses the mixture of tensors and DTensors that a `tp_plan` leaves
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
