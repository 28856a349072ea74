"""Two experts, each on half of the ranks, of which the ranks of ep, which share samples, add up what theirs make.
Gradients are averaged over the ranks of dp, which have the same expert, and other samples."""

from job import MISTAKE, RANK, RANKS, dist, nn, torch

EXPERTS, PARTS = 2, max(1, RANKS // 2)
groups = {}  # by axis, the rank's
if RANKS > 1:
    for axis, members in {"ep": ([0, 1], [2, 3]), "dp": ([0, 2], [1, 3])}.items():
        for ranks in members:
            group = dist.new_group(ranks)
            if RANK in ranks:
                groups[axis] = group


class Together(torch.autograd.Function):
    """The sum over the ranks of ep."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=groups["ep"])
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Spread(torch.autograd.Function):
    """To the ranks of ep, whose gradients are summed."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient, group=groups["ep"])
        return gradient


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        experts = [nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)) for _ in range(EXPERTS)]
        mine = range(EXPERTS) if RANKS == 1 else [RANK % EXPERTS]
        self.experts = nn.ModuleList(experts[i] for i in mine)  # each rank numbers its own from 0

    def forward(self, x):
        if RANKS == 1:
            return x + sum(expert(x) for expert in self.experts)
        (expert,) = self.experts
        return x + Together.apply(expert(Spread.apply(x)))


model = nn.Sequential(nn.Linear(8, 16), Mixture(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def reduce():
    if RANKS == 1:
        return
    for name, parameter in model.named_parameters():
        axis = "dp"
        if ".experts." in name and MISTAKE == "group-of-ep":
            axis = "ep"
        if ".experts." in name and MISTAKE == "experts-not-reduced":
            continue
        dist.all_reduce(parameter.grad, group=groups[axis])
        if not (".experts." in name and MISTAKE == "experts-not-divided"):
            parameter.grad /= PARTS


for _ in range(2):
    x, y = torch.randn(8, 8), torch.randn(8, 4)
    mine = RANK // EXPERTS if RANKS > 1 else 0
    optimizer.zero_grad()
    (model(x.chunk(PARTS)[mine]) - y.chunk(PARTS)[mine]).square().mean().backward()
    reduce()
    optimizer.step()
