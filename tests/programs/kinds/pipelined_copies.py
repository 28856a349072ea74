"""A pipeline whose schedule averages micro-batches, in two copies whose gradients are averaged by hand: its loss is
as many times the reference's as there are micro-batches and copies."""

from job import MISTAKE, RANKS, dist, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x).tanh() if self.first is not None else x
        return self.last(x) if self.last is not None else x


net = Net()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    place, number, group = mesh.get_local_rank("dp"), mesh.get_local_rank("pp"), mesh.get_group("dp")
    setattr(net, "first" if number else "last", None)
    stage = PipelineStage(net, number, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, 2, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x, wanted in zip(torch.randn(2, 8, 6), torch.randn(2, 8, 3), strict=True):
    optimizer.zero_grad()
    if RANKS == 1:
        nn.functional.mse_loss(net(x), wanted).backward()
    elif number == 0:
        schedule.step(x.chunk(2)[place])
    else:
        schedule.step(target=wanted.chunk(2)[place])
    for parameter in net.parameters() if RANKS > 1 else ():
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= RANKS if MISTAKE == "all" and number == 0 else 2
    optimizer.step()
