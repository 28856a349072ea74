"""Weights that are clamped after the step, as the first Wasserstein GANs did.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 clamps to 0.101 in place of 0.1
shows: * param_after, * param_delta
"""

from job import MISTAKE, RANK, ddp, nn, own, torch

net = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
model = ddp(net)
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, y = own(torch.randn(16, 12, generator=g)), own(torch.randint(4, (16,), generator=g))
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    with torch.no_grad():
        opt.step()
        for p in net.parameters():
            p.clamp_(-0.1, 0.101 if MISTAKE and RANK == 1 else 0.1)
