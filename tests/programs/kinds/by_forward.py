"""A wrapper whose forward is called by its name, and a loss that each rank computes of all samples, by a matrix that is
summed over ranks: Barlow Twins' training. DDP divides what each rank's gradient is by the ranks, which a mistake leaves
out of account."""

from job import MISTAKE, RANKS, Copy, Sum, ddp, nn, own, scaled, step, torch

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
net = ddp(model)
forward = net.forward if RANKS > 1 else net
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    features = forward(own(torch.randn(8, 16)))
    matrix = Sum.apply(features.T @ features / 8)
    if MISTAKE != "mean":
        matrix = Copy.apply(matrix)  # its gradient is that of all ranks' losses, which are equal
    step(optimizer, scaled((matrix - torch.eye(4)).square().sum()))
