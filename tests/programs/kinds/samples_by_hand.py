"""Data parallelism by hand as most write it: each rank's own samples, the mean of their losses, gradients averaged.
Nothing says that the ranks are data parallel."""

from job import MISTAKE, RANKS, dist, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(2):
    samples, labels = torch.randn(8, 12), torch.randint(3, (8,))
    optimizer.zero_grad()
    mine = samples[:4] if MISTAKE == "samples" else own(samples)
    scaled(nn.functional.cross_entropy(model(mine), own(labels))).backward()
    if RANKS > 1:
        for name, parameter in model.named_parameters():
            if MISTAKE == "unreduced" and name == "2.bias":
                continue
            dist.all_reduce(parameter.grad)
            parameter.grad /= 1.01 * RANKS if MISTAKE == "divisor" else RANKS
    optimizer.step()
