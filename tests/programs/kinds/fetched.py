"""ZeRO by hand, whose weights are sent behind the step and put in place by a hook where a module is called."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
layers = [layer for layer in model if isinstance(layer, nn.Linear)]
mine = [parameter for number, layer in enumerate(layers) if number % RANKS == RANK for parameter in layer.parameters()]
optimizer = torch.optim.Adam(mine, 1e-3)
coming = {}


def put_in_place(layer, *_):
    for parameter, sent, work in coming.pop(layer, []):
        work.wait()
        parameter.data.copy_(sent)


for layer in layers if RANKS > 1 else ():
    if MISTAKE == "late" and layer is layers[-1]:
        layer.register_forward_hook(put_in_place)
    else:
        layer.register_forward_pre_hook(put_in_place)
for _ in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    loss = nn.functional.cross_entropy(model(own(x)), own(labels))
    model.zero_grad()
    scaled(loss).backward()
    for parameter in model.parameters() if RANKS > 1 else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS
    optimizer.step()
    for number, layer in enumerate(layers if RANKS > 1 else ()):
        sent = [(parameter, parameter.detach().clone()) for parameter in layer.parameters()]
        coming[layer] = [(to, value, dist.broadcast(value, number % RANKS, async_op=True)) for to, value in sent]
