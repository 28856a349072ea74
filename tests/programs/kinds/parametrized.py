"""Parametrizations of PyTorch: a spectral norm, which is tried once where it is registered."""

from job import ddp, nn, own, scaled, step, torch
from torch.nn.utils.parametrizations import spectral_norm

model = nn.Sequential(spectral_norm(nn.Linear(20, 32)), nn.ReLU(), spectral_norm(nn.Linear(32, 5)))
model[0].weight.norm()  # a look at it
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
net = ddp(model)
for _ in range(2):
    x, labels = torch.randn(16, 20), torch.randint(5, (16,))
    step(optimizer, scaled(nn.functional.cross_entropy(net(own(x)), own(labels))))
