"""Trains a small language model on the log-likelihood of the next token: by one process, or under torchrun with the
tokens sharded over DTensors."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

TOKENS, VOCABULARY = 33, 20  # a block of 32, and the last one's label


class Likelihood(nn.Module):
    def __init__(self, cut_first: bool) -> None:
        super().__init__()
        self.cut_first = cut_first

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: [tokens, vocabulary], of which the last row has no label; `labels`: [tokens - 1, 1]."""
        likelihood = logits.log_softmax(-1)
        if self.cut_first:
            likelihood = likelihood[:-1]
        return likelihood.gather(-1, labels)


class Network(nn.Module):
    def __init__(self, cut_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.head = nn.Linear(16, VOCABULARY)
        self.likelihood = Likelihood(cut_first)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return -self.likelihood(self.head(self.embedding(tokens)), labels).sum() / len(labels)


def train(cut_first: bool, ranks: int) -> tuple[float, Network]:
    """One step: the loss and the model, which holds its gradients then."""
    tokens = torch.randint(VOCABULARY, (TOKENS,), generator=torch.Generator().manual_seed(1))
    labels = tokens[1:].unsqueeze(1)
    model = Network(cut_first)
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,))
        model = distribute_module(model, mesh)
        tokens = distribute_tensor(tokens, mesh, [Shard(0)])
        labels = distribute_tensor(labels, mesh, [Replicate()])
    loss = model(tokens, labels)
    loss.backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()
    return float(loss.detach().full_tensor() if ranks > 1 else loss.detach()), model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cut-first", action="store_true", help="gather from as many rows: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    train(arguments.cut_first, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
