"""One step of a small recommender, on one process: bags of embeddings in every mode, and a linear of 8-bit integers.
`recommender.py FAULT`: `none`; `bag` or `integer`, of which one output element is wrong."""

import sys

import torch
from torch import nn


class IntegerLinear(nn.Module):
    """int8 [n, k] times int8 [out, k] in int32."""

    def __init__(self, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randint(-128, 128, (out, width), dtype=torch.int8), requires_grad=False)

    def forward(self, codes):
        return codes.int() @ self.weight.int().t()


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.sums = nn.EmbeddingBag(50, 16, mode="sum")
        self.means = nn.EmbeddingBag(50, 16, padding_idx=7)
        self.largest = nn.EmbeddingBag(50, 16, mode="max", include_last_offset=True)
        self.weighted = nn.EmbeddingBag(50, 16, mode="sum")
        self.integers = IntegerLinear(16, 8)
        self.top = nn.Linear(16, 1)

    def forward(self, ids, bags, weights):
        starts = torch.arange(0, ids.numel(), 4)
        ends = torch.cat((starts, torch.tensor([ids.numel()])))
        found = self.sums(bags) + self.means(ids, starts) + self.largest(ids, ends)
        found = found + self.weighted(ids, offsets=starts, per_sample_weights=weights)
        codes = (found.detach() * 20).clamp(-128, 127).to(torch.int8)
        return self.top(found) + self.integers(codes).float().mean()


def damage(model, fault):
    def wrong(_module, _inputs, output):
        output = output.clone()
        output.data[3, 2] += 1
        return output

    {"bag": model.means, "integer": model.integers}[fault].register_forward_hook(wrong)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Recommender()
    if sys.argv[1] != "none":
        damage(model, sys.argv[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.randint(0, 50, (32,))
    ids[::5] = 7
    model(ids, torch.randint(0, 50, (8, 5)), torch.rand(32)).sum().backward()
    optimizer.step()
