"""A model with frozen parameters, all of which the reference gives to its optimizer. Ranks step those alone that train
("filtered"), or each steps its share of all and hands it on ("shared")."""

import sys

from job import MISTAKE, RANK, RANKS, dist, nn, own, scaled, summed, torch


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.full((16,), 1.5), requires_grad=False)
        self.shift = nn.Parameter(torch.zeros(16), requires_grad=False)

    def forward(self, x):
        return x * self.gain + self.shift


model = nn.Sequential(Normalized(), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
every = list(model.parameters())
stepped = every
if RANKS > 1:
    mine = every[RANK::RANKS]
    stepped = mine if "shared" in sys.argv else [each for each in every if each.requires_grad]
optimizer = torch.optim.AdamW(stepped, 1e-2)
for _ in range(2):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    optimizer.zero_grad()
    for each in every:
        each.grad = None
    scaled(nn.functional.cross_entropy(model(own(x)), own(labels))).backward()
    for each in every:
        if each.grad is not None:
            each.grad = summed(each.grad) / RANKS
    optimizer.step()
    with torch.no_grad():
        if MISTAKE == "thawed":
            model[0].gain.mul_(0.99)
        if RANKS > 1 and "shared" in sys.argv:
            for number, each in enumerate(every):
                if not (MISTAKE == "kept" and number == 2):
                    dist.broadcast(each, number % RANKS)
