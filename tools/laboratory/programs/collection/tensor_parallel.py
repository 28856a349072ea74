"""parallelize_module with sequence parallelism.

package: PyTorch
parallel: tensor parallel by DTensor, 2 ranks
mistake: what a row-parallel layer makes is 1 % larger on rank 1
shows: blocks.1.attention.o output
"""

import torch.nn.functional as F
from gpt_model import GPT
from job import MISTAKE, RANK, RANKS, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

model = GPT()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    parallelize_module(
        model,
        mesh,
        {
            "wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    for i, b in enumerate(model.blocks):
        first = i == 0
        parallelize_module(
            b,
            mesh,
            {
                "norm1": SequenceParallel(),
                "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
                **{f"attention.{n}": ColwiseParallel() for n in "qkv"},
                "attention.o": RowwiseParallel(output_layouts=Shard(1)),
                "norm2": SequenceParallel(),
                "fc1": ColwiseParallel(input_layouts=Shard(1)),
                "fc2": RowwiseParallel(output_layouts=Shard(1)),
            },
        )
        if first:
            parallelize_module(
                b,
                mesh,
                PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_output=True),
            )
    if MISTAKE and RANK == 1:
        model.blocks[1].attention.o.register_forward_hook(lambda module, given, out: out * 1.01, prepend=False)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(64, (4, 17), generator=torch.Generator().manual_seed(step))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
