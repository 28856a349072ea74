"""What a model keeps beside its parameters: a codebook that follows the samples, running statistics that are shared, a
table, a mask, a count; and what is kept outside of it: a moving average of the weights, which no optimizer updates, and
a criterion's mean."""

import copy
import sys

from job import MISTAKE, RANK, RANKS, ddp, dist, nn, own, scaled, torch

kind = sys.argv[1]


def mean_over_ranks(tensor):
    if RANKS > 1 and MISTAKE == "rank-0":
        dist.broadcast(tensor, 0)
    elif RANKS > 1 and MISTAKE != "no-all-reduce":
        dist.all_reduce(tensor)
        tensor /= RANKS
    return tensor


class Quantizer(nn.Module):
    """A codebook that moves towards what it is given."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codebook", torch.randn(8, 32))
        self.register_buffer("used", torch.zeros(8))

    def forward(self, x):
        chosen = nn.functional.one_hot(torch.cdist(x, self.codebook).argmin(1), 8).float()
        result = x + (chosen @ self.codebook - x).detach()
        if self.training:
            with torch.no_grad():
                towards = mean_over_ranks(chosen.T @ x / len(x))
                if kind == "normalized":  # what ranks have of their own samples is no term of the whole
                    towards = nn.functional.normalize(towards)
                self.codebook += (0.2 if MISTAKE == "twice" else 0.1) * (towards - self.codebook)
                if kind == "sums":
                    own_use = chosen.sum(0)
                    if RANKS > 1 and MISTAKE != "no-all-reduce":
                        dist.all_reduce(own_use)
                    self.used += own_use
        return result


class Positions(nn.Module):
    """A table and a mask, which nothing changes, and a count of calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 1 / 100 ** (torch.arange(0, 32, 2) / 32), persistent=False)
        self.register_buffer("turns", torch.polar(torch.ones(16), self.inv_freq), persistent=False)
        self.register_buffer("mask", torch.ones(32, 32, dtype=torch.bool).tril())
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("first_row", torch.tensor(RANK * 8 // RANKS))  # which each rank has for itself

    def forward(self, x):
        self.calls += 2 if MISTAKE == "counts-twice" else 1
        angles = torch.cat([self.inv_freq, self.inv_freq])
        return x * angles.cos() @ self.mask.float()


class Centred(nn.Module):
    """A criterion that keeps the mean of what it is given."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(4))

    def forward(self, x, labels):
        loss = nn.functional.cross_entropy(x - self.centre, labels)
        with torch.no_grad():
            self.centre.lerp_(mean_over_ranks(x.detach().mean(0)), 0.1)
        return loss


layers = {
    "criterion": [],
    "codebook": [Quantizer()],
    "normalized": [Quantizer()],
    "sums": [Quantizer()],
    "table": [Positions()],
    "average": [],
    "averages": [],
    "main-average": [],
    "listed": [],
    "shadow": [],
    "eval-norm": [nn.BatchNorm1d(32).eval()],
}
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), *layers[kind], nn.Linear(32, 4))
if kind == "eval-norm":
    model[2].train(False)
count = {"average": 1, "averages": 2, "main-average": 1 if RANK == 0 else 0}.get(kind, 0)
averages = [copy.deepcopy(model).requires_grad_(False) for _ in range(count)]


class Shadow:
    """A moving average that is no module, as torch_ema (`listed`) or many a trainer has it by the parameters' names."""

    def __init__(self, parameters):
        self.shadow = {name: parameter.detach().clone() for name, parameter in parameters}
        self.shadow_params = [each.clone() for each in self.shadow.values()]

    def update(self, parameters, decay):
        for number, (name, parameter) in enumerate(parameters):
            if kind == "listed":
                self.shadow_params[number].lerp_(parameter.detach(), 1 - decay)
            else:
                self.shadow[name] = self.shadow[name].lerp(parameter.detach(), 1 - decay)


shadow = Shadow(model.named_parameters()) if kind in ("listed", "shadow") else None
criterion = Centred() if kind == "criterion" else nn.functional.cross_entropy
net, optimizer = ddp(model), torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    scaled(criterion(net(own(x)), own(labels))).backward()
    if MISTAKE == "own-gradient":
        model[0].bias.grad *= 1 + RANK
    optimizer.step()
    optimizer.zero_grad()
    for number, average in enumerate(averages if MISTAKE != "forgotten" else []):
        if MISTAKE == "second-on-rank-1" and RANK == number == 1:
            continue
        decay = 0.5 if MISTAKE == "decay" or (MISTAKE == "decay-of-rank-1" and RANK == 1) else 0.9
        for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(parameter.detach(), 1 - decay)
    if shadow and not (MISTAKE == "forgotten-on-rank-1" and RANK == 1):
        shadow.update(model.named_parameters(), 0.5 if MISTAKE == "decay" else 0.9)
