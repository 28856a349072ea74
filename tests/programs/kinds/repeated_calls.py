"""A model that each rank calls as often as what it computes asks for, as a solver does with a step size of its own:
here the mean of equal calls, whose gradient does not depend on how many they are."""

from job import RANK, RANKS, ddp, nn, own, scaled, step, torch

net = ddp(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)))
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
calls = 4 if RANKS == 1 else 2 + 2 * RANK
for _ in range(2):
    samples, targets = own(torch.randn(8, 16)), own(torch.randn(8, 4))
    output = sum(net(samples) for _ in range(calls)) / calls
    step(optimizer, scaled(nn.functional.mse_loss(output, targets)))
