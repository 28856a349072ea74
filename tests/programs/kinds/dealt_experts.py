"""Experts that every rank holds, and of which each runs its own, for the samples of all ranks; the rest is data
parallel by hand."""

from job import MISTAKE, RANK, RANKS, Gather, dist, nn, own, scaled, torch

EXPERTS = 4


class GatherWithoutOthers(Gather):
    """A mistake: what the others make of a rank's part does not come back."""

    @staticmethod
    def backward(ctx, gradient):
        return own(gradient)


gather = GatherWithoutOthers.apply if MISTAKE == "gather" else Gather.apply


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(EXPERTS)
        )

    def forward(self, slots):
        every = gather(slots)
        mine = range(EXPERTS)[RANK * EXPERTS // RANKS : (RANK + 1) * EXPERTS // RANKS]
        made = torch.stack([self.experts[i](every[:, i]) for i in mine])
        return own(gather(made).transpose(0, 1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.slots, self.experts = nn.Parameter(torch.randn(EXPERTS, 16)), Experts()

    def forward(self, x):
        scores = x @ self.slots.T
        slots = scores.softmax(1).transpose(1, 2) @ x
        return x + scores.softmax(2) @ self.experts(slots)


model = nn.Sequential(nn.Linear(8, 16), Block(), Block(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(2):
    x, y = own(torch.randn(8, 6, 8)), own(torch.randint(3, (8, 6)))
    optimizer.zero_grad()
    scaled(nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())).backward()
    for parameter in model.parameters() if RANKS > 1 else ():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS
    optimizer.step()
