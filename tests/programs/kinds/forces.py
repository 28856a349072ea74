"""A potential whose wrapper derives forces by an inner `autograd.grad` in its forward: some gradients of a micro-batch
are of that, others of the loss's backward."""

from job import MISTAKE, RANK, ddp, nn, own, step, torch


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, positions):
        return self.layers(positions)


class WithForces(nn.Module):
    def __init__(self):
        super().__init__()
        self.potential = Potential()

    def forward(self, positions):
        positions = positions.requires_grad_()
        energies = self.potential(positions)
        (slope,) = torch.autograd.grad(energies.sum(), positions, create_graph=True)
        return energies, -slope


model = ddp(WithForces())
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    positions, forces, energies = torch.randn(8, 6), torch.randn(8, 6), torch.randn(8, 1)
    found, pulls = model(own(positions))
    weight = 10.1 if MISTAKE == "weight" and RANK == 1 else 10
    loss = (found - own(energies)).square().mean() + weight * (pulls - own(forces)).square().mean()
    step(optimizer, loss)
