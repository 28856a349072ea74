"""GPTModel of Megatron-core, as tools/frameworks/megatron trains it."""

import os
import sys
from pathlib import Path

import feed
import torch

sys.path.append(str(Path(__file__).resolve().parents[3] / "frameworks/megatron"))

import options as command_line
import train

MICRO_BATCHES, LENGTH = 2, 32

chosen = feed.options()
feed.wait(chosen.wait)
sizes = {
    "--steps": feed.STEPS,
    "--micro-batches": MICRO_BATCHES,
    "--sequence": LENGTH,
    "--tp": os.environ.get("WORLD_SIZE", 1),
}
sys.argv[1:] = [str(word) for pair in sizes.items() for word in pair]
size = command_line.parse()
tokens = feed.Tokens(feed.STEPS * MICRO_BATCHES * size.micro_batch_size, LENGTH + 1, size.vocabulary)
data = [(sample, torch.ones(LENGTH, dtype=torch.bool)) for sample in tokens]
samples = feed.batches(chosen.source, data, size.micro_batch_size)
train.batches = lambda options, step: samples
train.main()
