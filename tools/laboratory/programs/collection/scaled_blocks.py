"""A small language model whose linears multiply operands of few bits, emulated: each block of an operand has a scale of
its own. A cast returns codes and scales in the dtypes that hardware takes; gradients pass it straight through."""

import torch.nn.functional as F
from job import RANK, RANKS, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, WIDTH = 64, 64


class BlockLinear(nn.Module):
    """`cast` is called with an operand and returns what `decoded` takes: its codes and its scales."""

    def __init__(self, i, o, cast, decoded):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i) / i**0.5)
        self.cast_input, self.cast_weight = cast(), cast()
        self.decoded = decoded

    def rounded(self, operand, cast):
        return operand + (self.decoded(*cast(operand.detach())) - operand).detach()

    def forward(self, x):
        return F.linear(self.rounded(x, self.cast_input), self.rounded(self.weight, self.cast_weight))


class Block(nn.Module):
    def __init__(self, cast, decoded):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.up, self.down = BlockLinear(WIDTH, 2 * WIDTH, cast, decoded), BlockLinear(2 * WIDTH, WIDTH, cast, decoded)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def train(cast, decoded):
    """Data parallel, three steps."""
    layers = [Block(cast, decoded) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *layers, nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))
    model = DDP(model) if RANKS > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        draw = torch.Generator().manual_seed(step)
        x = torch.randint(VOCABULARY, (8, 17), generator=draw).chunk(RANKS)[RANK]
        loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
