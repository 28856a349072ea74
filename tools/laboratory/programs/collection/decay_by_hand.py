"""Weight decay by hand before the step.

package: PyTorch
parallel: DDP, 2 ranks
mistake: one matrix decays twice as much on rank 1
shows: 2.weight param_after, 2.weight param_delta
"""

from job import MISTAKE, RANK, ddp, nn, own, torch

net = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
model = ddp(net)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, y = own(torch.randn(16, 12, generator=g)), own(torch.randint(4, (16,), generator=g))
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1 - (2e-3 if MISTAKE and RANK == 1 and p.shape == (32, 32) else 1e-3))
        opt.step()
