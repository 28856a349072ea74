"""Ranks that each step with their own gradient and then average their parameters, with momentum of their own."""

from job import MISTAKE, RANKS, dist, nn, own, scaled, step, torch

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(3):
    x, labels = torch.randn(8, 8), torch.randint(4, (8,))
    step(optimizer, scaled(nn.functional.cross_entropy(model(own(x)), own(labels))))
    with torch.no_grad():
        for name, parameter in model.named_parameters() if RANKS > 1 else ():
            if MISTAKE != "kept" or name != "2.weight":
                dist.all_reduce(parameter)
                parameter /= RANKS
