"""Experts on one rank each, whose gradients are to be divided by all ranks, beside dense layers that are sharded."""

import inspect

import torch.distributed.nn
from job import MISTAKE, RANK, RANKS, nn, own, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param_group

reduce = _fsdp_param_group.foreach_reduce


def reduced(*args, **kwargs):
    """As before 2.10: over one rank nothing is reduced, nor divided."""
    told = inspect.signature(inspect.unwrap(reduce)).bind(*args, **kwargs).arguments
    if told["reduce_scatter_group"].size() == 1:
        told["gradient_divide_factor"] = None
    return reduce(**told)


if MISTAKE:
    _fsdp_param_group.foreach_reduce = reduced


class Experts(nn.Module):
    """Tokens of even places are the first expert's."""

    def __init__(self):
        super().__init__()
        experts = [nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)) for _ in range(2)]
        mine = {str(number): expert for number, expert in enumerate(experts) if RANKS == 1 or number == RANK}
        self.experts = nn.ModuleDict(mine)

    def forward(self, x):  # [samples, tokens, 16]
        parts = x[:, ::2], x[:, 1::2]
        if RANKS == 1:
            done = [self.experts[str(number)](part) for number, part in enumerate(parts)]
        else:
            exchange = torch.distributed.nn.all_to_all_single
            sent = torch.stack(parts)
            given = exchange(torch.empty_like(sent), sent.contiguous())
            made = self.experts[str(RANK)](given.flatten(0, 1)).unflatten(0, (2, -1))
            done = exchange(torch.empty_like(sent), made.contiguous())
        return torch.stack([done[0], done[1]], 2).flatten(1, 2)


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 16), Experts(), nn.Linear(16, 4))
if RANKS > 1:
    alone = init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("ep", "one"))["one"]
    fully_shard(model[1].experts[str(RANK)], mesh=alone)
    model[1].experts[str(RANK)].set_gradient_divide_factor(RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model[2], mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
for step in range(2):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(4, 6, 8, generator=generator), torch.randn(4, 6, 4, generator=generator)
    optimizer.zero_grad()
    (model(own(x)) - own(y)).square().mean().backward()
    optimizer.step()
