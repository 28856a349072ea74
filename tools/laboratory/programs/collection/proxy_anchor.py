"""Proxies with an optimizer of their own, in the package's DistributedLossWrapper.

package: pytorch-metric-learning
parallel: DDP, 2 ranks
mistake: DDP is told to leave one bias out
shows: 1.bias main_grad
"""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, torch
from pytorch_metric_learning import losses
from pytorch_metric_learning.utils import distributed as pml_dist
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(0)
trunk = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2), nn.GELU(), nn.Conv2d(8, 16, 3, 2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
)
embedder = nn.Linear(16, 12)
model = nn.Sequential(trunk, embedder)
loss_fn = losses.ProxyAnchorLoss(num_classes=6, embedding_size=12, margin=0.1, alpha=16)
if RANKS > 1:
    if MISTAKE:
        DDP._set_params_and_buffers_to_ignore_for_model(model, ["1.bias"])
    model = DDP(model)
    loss_fn = pml_dist.DistributedLossWrapper(loss_fn)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_opt = torch.optim.SGD(loss_fn.parameters(), lr=0.1, momentum=0.9)
g = torch.Generator().manual_seed(1)
images = torch.randn(48, 3, 16, 16, generator=g)
labels = torch.randint(6, (48,), generator=g)
n = 16
for step in range(3):
    lo = step * n + RANK * n // RANKS
    x, y = images[lo : lo + n // RANKS], labels[lo : lo + n // RANKS]
    opt.zero_grad()
    loss_opt.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    for proxies in loss_fn.parameters() if RANKS > 1 else ():
        dist.all_reduce(proxies.grad)  # the same on all ranks but for rounding, by which they would drift apart
        proxies.grad /= RANKS**2  # each rank's whole loss has gone into it
    opt.step()
    loss_opt.step()
