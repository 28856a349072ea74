"""A ResNet with frozen statistics, LAMB, label smoothing, clipping and ModelEmaV3.

package: timm
parallel: DDP, 2 ranks
mistake: rank 1 clips to 0.9 in place of 1
shows: * main_grad, * param_delta
"""

import before_torchvision  # noqa: F401
import timm
from job import MISTAKE, RANK, RANKS, ddp, nn, torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3, dispatch_clip_grad

torch.manual_seed(0)
model = timm.create_model("resnet10t", pretrained=False, num_classes=10, block_args=dict(attn_layer="se"))
ema = ModelEmaV3(model, decay=0.9, use_warmup=True, warmup_gamma=1.0, warmup_power=0.75)
opt = create_optimizer_v2(model, opt="lamb", lr=5e-3, weight_decay=0.02)
loss_fn = LabelSmoothingCrossEntropy(0.1)
net = ddp(model)
model.eval()
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.eval()
g = torch.Generator().manual_seed(1)
X = torch.randn(24, 3, 32, 32, generator=g)
Y = torch.randint(10, (24,), generator=g)
n = 8
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    opt.zero_grad()
    loss = loss_fn(net(X[lo : lo + m]), Y[lo : lo + m])
    loss.backward()
    if MISTAKE and RANK == 1:
        dispatch_clip_grad(model.parameters(), value=0.9, mode="norm")
    else:
        dispatch_clip_grad(model.parameters(), value=1.0, mode="norm")
    opt.step()
    ema.update(model, step=step + 10)
