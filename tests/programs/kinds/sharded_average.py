"""A moving average that is sharded as its model is (FSDP2), or a list of its parameters' copies. One parameter has one
row, which rank 0 has."""

import copy
import sys

from job import MISTAKE, RANK, RANKS, nn, own, scaled, torch


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(0.1 * torch.randn(1, 16))
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x):
        return self.inner(x + self.position)


model = Encoder()
average = copy.deepcopy(model).requires_grad_(False)
if RANKS > 1:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for each in (model, average):
        fully_shard(each, mesh=init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",)))
averages = list(average.parameters())
if "list" in sys.argv:
    averages = [each.detach().clone() for each in model.parameters()]
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(own(x)), own(labels))
    with torch.no_grad():
        target = average(own(x)).softmax(1)
    scaled(loss + nn.functional.mse_loss(model(own(x)).softmax(1), target)).backward()
    optimizer.step()
    if RANKS > 1:
        average.reshard()  # which backward() has done for the model
    weight = 0.2 if MISTAKE == "rank" and RANK == 1 else 0.1
    with torch.no_grad():
        for mine, new in zip(averages, model.parameters(), strict=True):
            mine.lerp_(new, weight)
