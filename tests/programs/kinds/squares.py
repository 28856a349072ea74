"""Data parallel by hand beside tensor parallel, where a batch has as many samples as a layer has features: shapes do
not tell which axis splits which dimension."""

from job import MISTAKE, RANKS, dist, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
place, size, group = 0, 1, None
if RANKS > 1:
    mesh = init_device_mesh("cpu", (2, RANKS // 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    place, size, group = mesh.get_local_rank("dp"), mesh.size(0), mesh.get_group("dp")
optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
for x, wanted in zip(torch.randn(2, 8, 6), torch.randn(2, 8, 3), strict=True):
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x.chunk(size)[place]), wanted.chunk(size)[place]).backward()
    for name, parameter in net.named_parameters():
        if RANKS > 1 and not (MISTAKE == "unreduced" and name == "2.weight"):
            gradient = parameter.grad.to_local()
            dist.all_reduce(gradient, group=group)
            gradient /= size
    optimizer.step()
