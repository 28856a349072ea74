"""Tensor parallel ranks, which are to be given the same samples."""

from job import MISTAKE, RANK, RANKS, nn, own, scaled, step, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
data, wanted = torch.randn(3, 8, 6), torch.randn(3, 8, 3)
for x, y in zip(data, wanted, strict=True):
    if MISTAKE == "samples":
        x, y = own(x), own(y)
    if MISTAKE == "order" and RANK == 1:
        x = x.flip(1)
    step(optimizer, scaled(nn.functional.mse_loss(net(x), y)))
