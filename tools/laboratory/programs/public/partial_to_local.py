"""A sum of parts that a program takes as a local tensor, and hands back as what it was.

hint: --axes tp=2
"""

from job import MISTAKE, RANKS, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(16, 32), nn.Linear(32, 16, bias=False), nn.Linear(16, 4)

    def forward(self, x):
        x = self.second(torch.tanh(self.first(x)))
        if RANKS > 1:
            # Before 2.13 the gradient of `to_local` had the placements of its input, whatever these were.
            placements = [Partial()] if MISTAKE else [Replicate()]
            x = DTensor.from_local(x.to_local(grad_placements=placements), mesh, [Partial()])
            x = x.redistribute(placements=[Replicate()]).to_local()
        return self.third(x)


model = Mlp()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    second = RowwiseParallel(output_layouts=Partial(), use_local_output=False)
    parallelize_module(model, mesh, {"first": ColwiseParallel(), "second": second})
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(2):
    x, y = (torch.randn(8, n, generator=torch.Generator().manual_seed(step)) for n in (16, 4))
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
