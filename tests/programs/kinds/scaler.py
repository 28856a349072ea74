"""A loss scale of torch.amp.GradScaler that the parallel run begins at another number."""

from job import RANKS, ddp, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
net, optimizer = ddp(model), torch.optim.AdamW(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0 if RANKS == 1 else 8192.0)
for _ in range(2):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    optimizer.zero_grad()
    scaler.scale(scaled(nn.functional.cross_entropy(net(own(x)), own(labels)))).backward()
    scaler.step(optimizer)
    scaler.update()
