"""Trains a small network on a batch that does not divide by the number of ranks: by one process, or under torchrun with
the batch sharded over DTensors."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

BATCH, FEATURES = 5, 8
LOSSES = (F.binary_cross_entropy_with_logits, F.mse_loss, F.smooth_l1_loss, F.huber_loss)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(FEATURES, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(inputs)))


class Loss(nn.Module):
    def __init__(self, name: str, divided: bool) -> None:
        super().__init__()
        self.function, self.divided = getattr(F, name), divided

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        if self.divided:
            return self.function(output, target, reduction="sum") / output.numel()
        return self.function(output, target)


def train(name: str, divided: bool, ranks: int) -> tuple[float, Network]:
    """One step: the loss and the model, which holds its gradients then."""
    generator = torch.Generator().manual_seed(1)
    inputs, target = torch.randn(BATCH, FEATURES, generator=generator), torch.rand(BATCH, 4, generator=generator)
    model = Network()
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,))
        model = distribute_module(model, mesh)
        inputs, target = (distribute_tensor(whole, mesh, [Shard(0)]) for whole in (inputs, target))
    loss = Loss(name, divided)(model(inputs), target)
    loss.backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()
    return float(loss.detach().full_tensor() if ranks > 1 else loss.detach()), model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--loss", choices=[loss.__name__ for loss in LOSSES], default="binary_cross_entropy_with_logits"
    )
    parser.add_argument("--divide", action="store_true", help="the sum, not the mean: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    train(arguments.loss, arguments.divide, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
