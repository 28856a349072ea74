"""Initial values that each process fits to the data, which round otherwise in each: here those of rank 1 are made to be
two units in the last place off."""

from job import MISTAKE, RANK, ddp, nn, own, scaled, step, torch

model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()
data, wanted = torch.randn(2, 8, 6).double(), torch.randn(2, 8, 1).double()
net = ddp(model)
with torch.no_grad():
    features = torch.cat([model[:2](data.flatten(0, 1)), torch.ones(16, 1).double()], 1)
    fitted = torch.linalg.lstsq(features, wanted.flatten(0, 1)).solution[:8].T
    model[2].weight.copy_(fitted * (1 + RANK * 2.0**-51 * (1e9 if MISTAKE == "other" else 1)))
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for x, y in zip(data, wanted, strict=True):
    step(optimizer, scaled(nn.functional.mse_loss(net(own(x)), own(y))))
