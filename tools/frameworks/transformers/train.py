"""Fine-tunes a tiny pretrained model in a plain loop: by one process, or under torchrun with the parallelism that
transformers itself applies as it loads the model, or with DDP."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from data import micro_batches
from make_models import CONFIGURATIONS, checkpoint_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--model", choices=CONFIGURATIONS, default="llama")
    add("--ddp", action="store_true")
    add("--tp", type=int, default=1)
    add("--fsdp", type=int, default=1)
    add("--ep", type=int, default=1, help="among the ranks of --tp or --fsdp")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--checkpoint", action="store_true", help="activation checkpointing")
    add("--micro-batches", type=int, default=4, help="of a step, over all ranks")
    add("--micro-batch-size", type=int, default=2)
    add("--steps", type=int, default=1)
    return parser.parse_args()


def load(arguments: argparse.Namespace) -> nn.Module:
    options = {}
    if arguments.tp * arguments.fsdp > 1:
        sizes = {"tp_size": arguments.tp, "fsdp_size": arguments.fsdp, "ep_size": arguments.ep}
        options = {"distributed_config": DistributedConfig(**sizes)}
    model = AutoModelForCausalLM.from_pretrained(
        checkpoint_of(arguments.model), dtype=getattr(torch, arguments.dtype), **options
    )
    model.train()
    if arguments.checkpoint:
        model.gradient_checkpointing_enable()
    return DistributedDataParallel(model) if arguments.ddp else model


def main() -> None:
    arguments = parse_arguments()
    parallel = arguments.ddp or arguments.tp * arguments.fsdp > 1
    if parallel:
        dist.init_process_group("gloo")
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    model = load(arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(arguments.steps):
        # The ranks of a tensor-parallel group, which are neighbours, have the same micro-batches.
        batches = micro_batches(arguments.micro_batches, arguments.micro_batch_size, step)
        mine = batches[rank // arguments.tp :: world // arguments.tp]
        total = 0.0
        for tokens in mine:
            loss = model(input_ids=tokens, labels=tokens).loss / len(mine)
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step} loss {total:.6f}", flush=True)
    if parallel:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
