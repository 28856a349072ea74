"""A recommender whose tables each lie on one rank, under the names of the whole model: each rank looks the features of
all ranks' samples up in its tables, and sends every rank its rows. The layers above are in DDP."""

from job import MISTAKE, RANK, RANKS, ddp, dist, nn, own, scaled, step, torch

TABLES = 4


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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        tables = [nn.Embedding(16, 8) for _ in range(TABLES)]
        self.tables = nn.ModuleDict({f"table_{i}": tables[i] for i in own(torch.arange(TABLES)).tolist()})
        self.top = nn.Sequential(nn.Linear(8 * TABLES, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, features):
        if RANKS > 1:
            features = gathered(features, dim=0)
        rows = torch.cat([table(features[:, int(name[6:])]) for name, table in self.tables.items()], dim=1)
        return self.top(Exchange.apply(rows) if RANKS > 1 else rows)[:, 0]


model = Net()
model.top = ddp(model.top)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(2):
    features, clicks = torch.randint(16, (8, TABLES)), torch.randint(2, (8,)).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(own(features)), own(clicks))
    step(optimizer, scaled(loss))
