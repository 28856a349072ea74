"""A recommender whose tables each lie on one rank, under the names of the whole model: each rank looks the features of
all ranks' samples up in its tables, and sends every rank its rows. The layers above are in DDP. With "towers" a table
has an activation and a linear layer behind it, in a module that holds all three; with "ids" each rank is given all
samples' ids in its tables, and of its own samples what is dense. With "wrapped" FSDP2 has each tower, over its
rank alone."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, dist, nn, own, scaled, step, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TABLES = 4
DENSE = 5 if "ids" in sys.argv else 0


def gathered(part, dim):
    parts = [torch.empty_like(part) for _ in range(RANKS)]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts, dim)


class Exchange(torch.autograd.Function):
    """Makes the rows of all samples in a rank's tables those of the rank's samples in all tables."""

    @staticmethod
    def forward(context, rows):
        return own(gathered(rows, dim=1))

    @staticmethod
    def backward(context, gradient):
        return gathered(gradient, dim=0).chunk(RANKS, dim=1)[RANK] / (1 if MISTAKE == "sum" else RANKS)


def table():
    tower = nn.Sequential(nn.Embedding(16, 8), nn.Tanh(), nn.Linear(8, 8))
    return tower if "towers" in sys.argv else tower[0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        tables = [table() for _ in range(TABLES)]
        self.tables = nn.ModuleDict({f"table_{i}": tables[i] for i in own(torch.arange(TABLES)).tolist()})
        self.top = nn.Sequential(nn.Linear(8 * TABLES + DENSE, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, features, ids=None):
        dense = [features] if DENSE else []
        if not DENSE:
            features = gathered(features, dim=0) if RANKS > 1 else features
            ids = {name: features[:, int(name[6:])] for name in self.tables}
        rows = torch.cat([table(ids[name]) for name, table in self.tables.items()], dim=1)
        rows = Exchange.apply(rows) if RANKS > 1 else rows
        return self.top(torch.cat([rows, *dense], dim=1))[:, 0]


def given(model, features):
    """What the model is given of a batch."""
    if not DENSE:
        return (own(features),)
    dense = own(torch.randn(8, DENSE))
    if MISTAKE == "ids" and RANK == 1:
        features = features.roll(1, 0)
    return dense, {name: features[:, int(name[6:])] for name in model.tables}


model = Net()
model.top = ddp(model.top)
if "wrapped" in sys.argv and RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("dp", "one"))
    for tower in model.tables.values():
        fully_shard(tower, mesh=mesh["one"])
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(2):
    features, clicks = torch.randint(16, (8, TABLES)), torch.randint(2, (8,)).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(*given(model, features)), own(clicks))
    step(optimizer, scaled(loss))
