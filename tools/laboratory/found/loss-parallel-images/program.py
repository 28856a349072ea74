"""Trains a small segmentation network: by one process, or under torchrun with the classes of its head sharded over
ranks and the loss computed by `loss_parallel`."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module

BATCH, HEIGHT, WIDTH, CHANNELS, CLASSES = 2, 4, 6, 8, 12


class Loss(nn.Module):
    def __init__(self, flattened: bool) -> None:
        super().__init__()
        self.flattened = flattened

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: [batch, height, width, classes]; `labels`: [batch, height, width]."""
        if self.flattened:
            return F.cross_entropy(logits.reshape(-1, CLASSES), labels.reshape(-1))
        return F.cross_entropy(logits.permute(0, 3, 1, 2), labels)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(images)).permute(0, 2, 3, 1))


def train(flattened: bool, ranks: int) -> tuple[float, Network]:
    """One step: the loss and the model, which holds its gradients then."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(BATCH, 3, HEIGHT, WIDTH, generator=generator)
    labels = torch.randint(CLASSES, (BATCH, HEIGHT, WIDTH), generator=generator)
    model, loss_of = Network(), Loss(flattened)
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))
        head = ColwiseParallel(input_layouts=Replicate(), output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(model, mesh, {"head": head})
    with loss_parallel() if ranks > 1 else contextlib.nullcontext():
        loss = loss_of(model(images), labels)
        loss.backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False).step()
    return float(loss.detach().full_tensor() if ranks > 1 else loss.detach()), model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flatten", action="store_true", help="a row for each pixel: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    train(arguments.flatten, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
