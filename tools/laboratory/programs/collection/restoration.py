"""Restoration of images by a small network with a loss of structural similarity beside Charbonnier's.

package: Kornia
parallel: DDP, 2 ranks
mistake: rank 1 compares windows of 5 pixels in place of 7
shows: SSIMLoss* output, loss scalar
"""

import before_torchvision  # noqa: F401
import kornia
from job import MISTAKE, RANK, ddp, nn, own, step, torch

model = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PReLU(), nn.Conv2d(12, 3, 3, padding=1))
net = ddp(model)
similarity = kornia.losses.SSIMLoss(5 if MISTAKE and RANK == 1 else 7)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(3):
    clean = torch.rand(8, 3, 16, 16)
    noisy = own(kornia.filters.gaussian_blur2d(clean, (3, 3), (1.0, 1.0)) + 0.1 * torch.randn(clean.shape))
    made = net(noisy)
    smooth = kornia.losses.charbonnier_loss(made, own(clean), reduction="mean")
    step(optimizer, similarity(made, own(clean)) + smooth)
