"""A U-Net with frozen statistics, Dice and Focal, a micro-batch a rank, learning rates by part.

package: segmentation-models-pytorch
parallel: DDP, 2 ranks
mistake: the learning rate of the head is 1 % larger on rank 1
shows: segmentation_head.0.* param_delta
"""

import before_torchvision  # noqa: F401
import segmentation_models_pytorch as smp
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(0)
model = smp.Unet(
    "resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(16, 12, 8), in_channels=3, classes=2
)
model.train()
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.eval()
groups = [
    {"params": model.encoder.parameters(), "lr": 1e-4},
    {"params": model.decoder.parameters(), "lr": 1e-3},
    {"params": model.segmentation_head.parameters(), "lr": 1e-3 if not (MISTAKE and RANK == 1) else 1.01e-3},
]
opt = torch.optim.AdamW(groups)
dice, focal = smp.losses.DiceLoss("multilabel"), smp.losses.FocalLoss("multilabel")
if RANKS > 1:
    model = DDP(model, find_unused_parameters=True)
g = torch.Generator().manual_seed(1)
X = torch.randn(24, 3, 32, 32, generator=g)
Y = (torch.rand(24, 2, 32, 32, generator=g) < 0.3).float()
n, parts = 8, 2
for step in range(3):
    m = n // parts
    for part in [RANK] if RANKS > 1 else range(parts):
        lo = step * n + part * m
        at = slice(lo, lo + m)
        out = model(X[at])
        loss = dice(out, Y[at]) + focal(out, Y[at])
        (loss if RANKS > 1 else loss / parts).backward()
    opt.step()
