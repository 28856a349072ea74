"""Gradients of each sample by torch.func, clipped one by one and summed, as for differential privacy.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: rank 1 clips each sample to 0.9 in place of 1
hint: --axes dp=2
shows: * main_grad
"""

from job import MISTAKE, RANK, RANKS, dist, nn, own, torch
from torch.func import functional_call, grad, vmap

model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
limit = 0.9 if MISTAKE and RANK == 1 else 1.0


def loss_of(parameters, x, y):
    return nn.functional.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])


for _ in range(3):
    x, y = torch.randn(16, 10), torch.randint(4, (16,))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    gradients = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, own(x), own(y))
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    factors = (limit / norms).clamp(max=1.0)
    for name, p in model.named_parameters():
        p.grad = torch.einsum("b,b...->...", factors, gradients[name]) / 16
        if RANKS > 1:
            dist.all_reduce(p.grad)
    optimizer.step()
