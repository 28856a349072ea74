"""Layers whose weights are tensors in a factorized form, with gradients that are averaged by hand.

package: TensorLy-Torch
parallel: data parallel by hand, 2 ranks
mistake: the gradient of one factor is not reduced
shows: 0.weight.factors.factor_1 main_grad
"""

from job import MISTAKE, RANKS, dist, nn, own, torch
from tltorch import FactorizedLinear

model = nn.Sequential(
    FactorizedLinear((4, 4), (4, 8), rank=0.5, factorization="cp"),
    nn.GELU(),
    FactorizedLinear((4, 8), (2, 2), rank=0.5, factorization="tucker"),
)
for parameter in model.parameters():
    nn.init.normal_(parameter, std=0.3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(3):
    x, y = torch.randn(16, 16), torch.randint(4, (16,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(own(x)), own(y)).backward()
    if RANKS > 1:
        for name, parameter in model.named_parameters():
            if not (MISTAKE and name == "0.weight.factors.factor_1"):
                dist.all_reduce(parameter.grad)
                parameter.grad /= RANKS
    optimizer.step()
