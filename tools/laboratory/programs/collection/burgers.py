"""A network that solves Burgers' equation: second derivatives by inner gradients.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: rank 1 weighs the boundary by 10.1 in place of 10
shows: loss scalar
"""

from job import MISTAKE, RANK, RANKS, dist, nn, torch

model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)


def residual(x):
    x = x.requires_grad_()
    u = model(x)
    du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    uxx = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)[0][:, 0]
    nu = 0.01
    return du[:, 1] + u[:, 0] * du[:, 0] - nu / torch.pi * uxx


for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, b = torch.rand(64, 2, generator=g) * 2 - 1, torch.rand(16, 2, generator=g)
    b[:, 1] = 0
    n, m = 64 // RANKS, 16 // RANKS
    x, b = x[RANK * n : (RANK + 1) * n], b[RANK * m : (RANK + 1) * m]
    loss = (
        residual(x).square().mean()
        + (10.1 if MISTAKE and RANK == 1 else 10) * (model(b)[:, 0] + torch.sin(torch.pi * b[:, 0])).square().mean()
    )
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= RANKS
    opt.step()
