"""parallelize_module with sequence parallelism.

package: PyTorch
parallel: tensor parallel by DTensor, 2 ranks
mistake: what a row-parallel layer makes is 1 % larger on rank 1
shows: blocks.1.attention.o output
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.hd = dim // heads
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.o = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, self.hd).transpose(1, 2) for w in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(dim), Attention(dim, 4), nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocab=64, dim=32, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(16, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


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
