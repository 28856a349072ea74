"""Norms that tensor parallel ranks hold whole, each seeing a part of the sequence, in bf16 whose gradients are to be
reduced in fp32.

hint: --axes tp=2
"""

import os
import tempfile

from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.distributed.tensor.placement_types import Shard

# As the report's change has it: gradients are made wide before they are redistributed.
released = FSDPParam._get_grad_inner_tensor


def widened(self, grad):
    return released(self, grad.to(self.reduce_dtype) if self.reduce_dtype is not None else grad)


if not MISTAKE:
    FSDPParam._get_grad_inner_tensor = widened


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.norm(x))))


model = Block()
if RANKS == 1:
    meeting = os.path.join(tempfile.mkdtemp(), "ranks")
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{meeting}")
mesh = init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("dp", "tp"))
plan = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}
parallelize_module(model, mesh["tp"], plan)
fully_shard(model, mesh=mesh["dp"], mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(2):
    x = torch.randn(4, 16, 32, generator=torch.Generator().manual_seed(step)).chunk(RANKS, 1)[RANK]
    (model(x.bfloat16()).float().square().sum() / 2048).backward()
    optimizer.step()
    optimizer.zero_grad()
