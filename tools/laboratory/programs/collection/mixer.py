"""A mixer of patches, built of the package's layers.

package: einops
parallel: DDP, 2 ranks
mistake: on rank 1 the last mean is over the channels' order of another pattern
shows: 4 output, 4* output
"""

from einops.layers.torch import Rearrange, Reduce
from job import MISTAKE, RANK, ddp, nn, own, step, torch

pattern = "b (w h) d -> b (h d) 1" if MISTAKE and RANK == 1 else "b (h w) d -> b (h d) 1"
model = nn.Sequential(
    Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
    nn.Linear(48, 24),
    nn.GELU(),
    nn.LayerNorm(24),
    Reduce(pattern, "mean", h=4),
    nn.Flatten(),
    nn.Linear(96, 5),
)
net = ddp(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    x, y = torch.randn(8, 3, 16, 16), torch.randint(5, (8,))
    step(optimizer, nn.functional.cross_entropy(net(own(x)), own(y)))
