"""What a forward keeps for the next: statistics of samples, power iteration's vector, an observer's range, a codebook,
a router's bias, a queue of keys and its place, a count."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, dist, nn, own, step, torch

kind = sys.argv[1]
is_wrong = MISTAKE == "own-samples"  # each rank's own, where all ranks' are meant


def of_all(tensor, reduce="sum"):
    if RANKS == 1 or is_wrong:
        return tensor
    tensor = tensor.contiguous().clone()
    dist.all_reduce(tensor, {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}[reduce])
    return tensor


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("value", torch.randn(8, 32) if kind in ("codebook", "queue") else torch.zeros(32))
        if kind == "spectral":
            self.weight = nn.Parameter(torch.randn(32, 32) / 6)
            self.value.copy_(nn.functional.normalize(torch.randn(32), dim=0))
        if kind == "router":
            self.choose = nn.Linear(32, 4)
            self.experts = nn.Parameter(torch.randn(4, 32, 32) / 6)
            self.register_buffer("bias", torch.zeros(4))

    def forward(self, x):
        result = getattr(self, kind)(x)
        self.calls += 1
        return result

    def later(self):
        return self.calls > 0

    def statistics(self, x):
        with torch.no_grad():
            count = len(x) * (RANKS if not is_wrong else 1)
            rate = 0.2 if MISTAKE == "rate-later" and self.later() else 0.1
            self.value.lerp_(of_all(x.detach().sum(0)) / count, rate)
        return x - self.value

    def spectral(self, x):
        with torch.no_grad():
            if not (MISTAKE == "stands-on-rank-1" and RANK == 1 and self.later()):
                self.value.copy_(nn.functional.normalize(self.weight @ (self.weight.T @ self.value), dim=0))
        return x @ (self.weight / (self.value @ self.weight).norm()).T

    def observer(self, x):
        with torch.no_grad():
            largest = of_all(x.detach().abs().amax(0), "max")
            self.value.copy_(torch.maximum(self.value, largest))
        scale = self.value.clamp(min=1e-3) / 127
        return x + (torch.round(x / scale) * scale - x).detach()

    def codebook(self, x):
        chosen = nn.functional.one_hot(torch.cdist(x, self.value).argmin(1), 8).float()
        result = x + (chosen @ self.value - x).detach()
        with torch.no_grad():
            used, sums = of_all(chosen.sum(0)), of_all(chosen.T @ x)
            means = torch.where(used[:, None] > 0, sums / used[:, None].clamp(min=1), self.value)
            self.value.lerp_(means, 0.1)
            if MISTAKE == "restarted-on-rank-1" and RANK == 1 and self.later():
                self.value[3] = x[0].detach()
        return result

    def router(self, x):
        scores = self.choose(x).softmax(-1)
        best = (scores + self.bias).argmax(-1)
        chosen = nn.functional.one_hot(best, 4).float()
        with torch.no_grad():
            load = of_all(chosen.sum(0))
            self.bias += 0.01 * torch.sign(load.mean() - load)
        return torch.einsum("nd,edf,ne->nf", x, self.experts, chosen * scores)

    def queue(self, x):
        keys = nn.functional.normalize(x, dim=1)
        kept = self.value.clone()
        result = x + 0.1 * (keys @ kept.T) @ kept
        with torch.no_grad():
            fresh = keys.detach()
            if RANKS > 1 and not is_wrong:
                parts = [torch.empty_like(fresh) for _ in range(RANKS)]
                dist.all_gather(parts, fresh.contiguous())
                fresh = torch.cat(parts)
            place = 0 if MISTAKE == "place-stands" else int(self.calls) * 4 % 8
            fresh = fresh[:4]
            self.value[place : place + 4] = fresh
        return result


model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), Kept(), nn.Linear(32, 4))
net, optimizer = ddp(model), torch.optim.AdamW(model.parameters(), 1e-3)
if RANKS > 1:
    net.broadcast_buffers = False
for _ in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    step(optimizer, nn.functional.cross_entropy(net(own(x)), own(labels)))
