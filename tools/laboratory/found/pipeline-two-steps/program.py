"""Trains a small network by gradient accumulation over two runs of a pipeline schedule: by one process, or under
torchrun by torch.distributed.pipelining."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

HIDDEN, RUNS, MICRO_BATCHES, MICRO_BATCH_SIZE = 16, 2, 4, 2


class Network(nn.Module):
    """Layers under the names that they have in the whole, also where this is a stage of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleDict({str(number): nn.Linear(HIDDEN, HIDDEN) for number in range(4)})

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers.values():
            hidden = torch.tanh(layer(hidden))
        return hidden

    def keep(self, numbers: range) -> "Network":
        self.layers = nn.ModuleDict({str(number): self.layers[str(number)] for number in numbers})
        return self


def batch(run: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one run of the schedule."""
    generator = torch.Generator().manual_seed(run)
    return tuple(torch.randn(2, MICRO_BATCHES * MICRO_BATCH_SIZE, HIDDEN, generator=generator))


def divided_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, target) / MICRO_BATCHES


def accumulate(model: Network) -> None:
    """By one process."""
    for run in range(RUNS):
        for inputs, target in zip(*(part.split(MICRO_BATCH_SIZE) for part in batch(run)), strict=True):
            divided_loss(model(inputs), target).backward()


def accumulate_in_stages(divide_loss: bool) -> Network:
    """By two ranks; returns this one's part of the model."""
    rank = dist.get_rank()
    model = Network().keep(range(2 * rank, 2 * rank + 2))
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    if divide_loss:
        schedule = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=divided_loss, scale_grads=False)
    else:
        schedule = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=F.mse_loss)
    for run in range(RUNS):
        inputs, target = batch(run)
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=target)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--divide-loss", action="store_true", help="not the gradients: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
        model = accumulate_in_stages(arguments.divide_loss)
    else:
        model = Network()
        accumulate(model)
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
