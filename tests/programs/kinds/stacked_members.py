"""An ensemble by torch.func: the parameters of all members are stacked, and no module has them; what is called is the
skeleton of one member ("meta": on no device). Each rank trains its own members ("dealt": in turns), on samples drawn
for each."""

import copy
import sys

from job import MISTAKE, RANK, RANKS, nn, torch
from torch.func import functional_call, stack_module_state, vmap

MEMBERS = 4
members = [nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)) for _ in range(MEMBERS)]
mine = torch.arange(MEMBERS).chunk(RANKS)[RANK].tolist()
if "dealt" in sys.argv:
    mine = list(range(RANK, MEMBERS, RANKS))
stacked, buffers = stack_module_state([members[number] for number in mine])
skeleton = copy.deepcopy(members[0])
if "meta" in sys.argv:
    skeleton.to("meta")
optimizer = torch.optim.Adam(stacked.values(), 1e-2)
x, y = torch.randn(32, 8), torch.randn(32, 1)


def loss_of(parameters, buffers, x, y):
    return nn.functional.mse_loss(functional_call(skeleton, (parameters, buffers), (x,)), y)


for step in range(2):
    of = range(len(mine)) if MISTAKE == "samples" else mine
    drawn = [torch.randint(32, (16,), generator=torch.Generator().manual_seed(10 * number + step)) for number in of]
    drawn = torch.stack(drawn)
    optimizer.zero_grad()
    vmap(loss_of)(stacked, buffers, x[drawn], y[drawn]).sum().backward()
    if MISTAKE == "scale" and RANK == 1:
        stacked["2.weight"].grad *= 1.01
    optimizer.step()
