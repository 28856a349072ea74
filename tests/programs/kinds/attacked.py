"""Training on samples that were attacked: the gradient that tells their worst neighbours goes round DDP, is a sum where
the step's is a mean, and is zeroed before the step."""

from job import MISTAKE, ddp, nn, own, torch

bare = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
model = ddp(bare)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    x, labels = own(torch.randn(8, 16)).requires_grad_(), own(torch.randint(4, (8,)))
    nn.functional.cross_entropy(bare(x), labels, reduction="sum").backward()
    if MISTAKE != "kept":
        optimizer.zero_grad()
    nn.functional.cross_entropy(model((x + 0.1 * x.grad.sign()).detach()), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
