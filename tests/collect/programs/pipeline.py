"""A model of four layers, trained for one step on four micro-batches: by one process, or by two with a schedule of
torch.distributed.pipelining. A stage keeps of the model what it runs, under its name."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # as in ranks.py
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

LAYERS, MICROBATCHES = 4, 4

parser = argparse.ArgumentParser()
parser.add_argument("--schedule", default="1F1B", help="1F1B, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble")
parser.add_argument("--divide-loss", action="store_true", help="in the loss, and not gradients at the end")
options = parser.parse_args()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.layers = nn.ModuleDict({str(layer): Block() for layer in range(LAYERS)})
        self.head = nn.Linear(8, 16)

    def forward(self, x):
        x = self.embedding(x) if self.embedding is not None else x
        for layer in self.layers.values():
            x = layer(x)
        return self.head(x) if self.head is not None else x


def part(index, count):
    """The stage `index` of `count`."""
    torch.manual_seed(0)
    model = Model()
    for layer in range(LAYERS):
        if layer * count // LAYERS != index:
            del model.layers[str(layer)]
    if index > 0:
        model.embedding = None
    if index < count - 1:
        model.head = None
    return model


def mean_loss(logits, tokens):
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def share_of_loss(logits, tokens):
    return mean_loss(logits, tokens) / MICROBATCHES


torch.manual_seed(1)
batch = torch.randint(0, 16, (2 * MICROBATCHES, 5))
size = int(os.environ.get("WORLD_SIZE", 1))
if size == 1:
    models = [part(0, 1)]
    for tokens in batch.chunk(MICROBATCHES):
        share_of_loss(models[0](tokens), tokens).backward()
else:
    dist.init_process_group("gloo")
    rank, device = dist.get_rank(), torch.device("cpu")
    count = size if options.schedule == "1F1B" else 2 * size
    mine = [rank] if count == size else [rank, count - 1 - rank if options.schedule.startswith("ZBV") else rank + size]
    models = [part(index, count) for index in mine]
    stages = [PipelineStage(model, index, count, device) for model, index in zip(models, mine, strict=True)]
    schedule = getattr(schedules, f"Schedule{options.schedule}")(
        stages[0] if count == size else stages,
        MICROBATCHES,
        loss_fn=share_of_loss if options.divide_loss else mean_loss,
        scale_grads=not options.divide_loss,
    )
    schedule.step(*([batch] if rank == 0 else []), **({"target": batch} if count - 1 in mine else {}))
torch.optim.SGD([parameter for model in models for parameter in model.parameters()], lr=0.1).step()
if size > 1:
    dist.destroy_process_group()
