"""Layers of which each rank has half, with norms between them that all have; gradients are clipped by the norm of all
shards, which counts once what all have."""

from job import MISTAKE, RANK, RANKS, Copy, Sum, nn, summed, torch


def part(layer, dim):
    """The rank's part of the layer: of its outputs (0), or of its inputs (1)."""
    with torch.no_grad():
        rank = 0 if MISTAKE == "shard-of-rank-0" and dim == 0 else RANK
        layer.weight = nn.Parameter(layer.weight.chunk(RANKS, dim)[rank].clone())
        if layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias.chunk(RANKS)[RANK].clone())
    return layer


class Wide(nn.Linear):
    def forward(self, x):
        return super().forward(x if MISTAKE == "gradient-not-summed" else Copy.apply(x))


class Narrow(nn.Linear):
    def forward(self, x):
        return super().forward(x) if MISTAKE == "output-not-summed" else Sum.apply(super().forward(x))


class Split(nn.Module):
    """Two layers, split over the ranks by what is between them."""

    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(16), part(Wide(16, 32), 0), part(Narrow(32, 16, bias=False), 1)

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(self.norm(x))))


model = nn.Sequential(nn.Linear(8, 16), Split(), Split(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def clip():
    squares = {split: torch.zeros(()) for split in (True, False)}
    for name, parameter in model.named_parameters():
        squares[".wide." in name or ".narrow." in name] += parameter.grad.square().sum()
    if MISTAKE == "norm-of-rank-0":
        square = squares[True].clone()
        if RANKS > 1:
            torch.distributed.broadcast(square, 0)
        square += squares[False]
    elif MISTAKE == "norm-counts-copies":
        square = summed(squares[True] + squares[False])
    elif MISTAKE == "norm-of-own-shards":
        square = squares[True] + squares[False]
    elif MISTAKE == "norm-lacks-shards":
        square = squares[False]
    else:
        square = summed(squares[True]) + squares[False]
    nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, square.sqrt())


for _ in range(2):
    x, y = torch.randn(8, 8), torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    clip()
    optimizer.step()
