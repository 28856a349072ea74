"""Gradients clipped by hand, of layers of which each rank has half: the norm is that of all shards."""

from job import MISTAKE, RANK, RANKS, Copy, Sum, nn, summed, torch


def part(layer, dim):
    """The rank's part of the layer: of its outputs (0), or of its inputs (1)."""
    with torch.no_grad():
        layer.weight = nn.Parameter(layer.weight.chunk(RANKS, dim)[RANK].clone())
        if layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias.chunk(RANKS)[RANK].clone())
    return layer


class Wide(nn.Linear):
    def forward(self, x):
        return super().forward(Copy.apply(x))


class Narrow(nn.Linear):
    def forward(self, x):
        return Sum.apply(super().forward(x))


class Split(nn.Module):
    """Two layers, split over the ranks by what is between them."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = part(Wide(16, 32), 0), part(Narrow(32, 16, bias=False), 1)

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(x)))


model = nn.Sequential(nn.Linear(8, 16), Split(), Split(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def clip():
    squares = {split: torch.zeros(()) for split in (True, False)}
    for name, parameter in model.named_parameters():
        squares[name[0] in "12"] += parameter.grad.square().sum()
    split = squares[True] if MISTAKE == "own-norm" else summed(squares[True])
    factor = (0.1 / (split + squares[False]).sqrt()).clamp(max=1)
    for parameter in model.parameters():
        parameter.grad *= factor


for _ in range(2):
    x, y = torch.randn(8, 8), torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    clip()
    optimizer.step()
