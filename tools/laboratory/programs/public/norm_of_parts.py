"""Gradients that are sums of parts, as those of norms are whose ranks see parts of the sequence, are clipped.

hint: --axes tp=2
"""

import inspect

from job import MISTAKE, RANK, RANKS, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._ops import _math_ops
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module


def norm_of_norms(tensors, *_):
    norms = [torch.linalg.vector_norm(tensor) for tensor in tensors]
    return torch.stack([norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]).norm()


if MISTAKE:  # as before 2.10: parts are reduced as they are, and what comes of it is a sum of parts again
    code = inspect.getsource(_math_ops.common_reduction_strategy).replace("p.reduce_op != reduction_op", "False")
    exec(code, vars(_math_ops))
    torch.nn.utils.clip_grad._get_total_norm = norm_of_norms  # other placements of norms are stacked in one


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.norm(x))))


model = Block()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(model, mesh, plan)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(2):
    x = torch.randn(4, 16, 32, generator=torch.Generator().manual_seed(step)).chunk(RANKS, 1)[RANK]
    optimizer.zero_grad()
    (model(x).square().sum() / 2048).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
