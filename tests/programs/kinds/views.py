"""Two views of each sample side by side in one batch, as SimCLR and FixMatch have them: net(cat([first, second]))."""

from job import MISTAKE, RANK, ddp, nn, own, scaled, step, torch

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
net = ddp(model)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    samples = torch.randn(8, 16)
    first, second = own(samples), own(samples + 0.1 * torch.randn(8, 16))
    if MISTAKE == "views" and RANK == 1:
        second = second.flip(0)
    a, b = net(torch.cat([first, second])).chunk(2)
    step(optimizer, scaled((a - b).square().mean() + a.pow(4).mean()))
