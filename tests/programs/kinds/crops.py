"""Crops of two sizes of each sample, as DINO and SwAV have them: those of one size go through the model one behind the
other in one batch, and what it makes of all of them through the head. `turns`: samples are dealt in turn."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, own, scaled, step, torch

GLOBAL, LOCAL = 2, 3


class MultiCrop(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 12))

    def forward(self, crops):
        large, small = torch.cat(crops[:GLOBAL]), torch.cat(crops[GLOBAL:])
        if MISTAKE == "crops" and RANK == 1:
            small = small.roll(1, 0)
        return self.head(torch.cat([self.backbone(large), self.backbone(small)]))


class Agreement(nn.Module):
    """How far the crops of a sample are from its first ones."""

    def forward(self, logits):
        first, *others = logits.log_softmax(-1).chunk(GLOBAL + LOCAL)
        return sum((first - other).square().sum(-1).mean() for other in others)


def dealt(batch: torch.Tensor) -> torch.Tensor:
    return batch[RANK::RANKS] if "turns" in sys.argv else own(batch)


model = MultiCrop()
net, criterion = ddp(model), Agreement()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    crops = [dealt(torch.randn(8, 3, 12, 12)) for _ in range(GLOBAL)]
    crops += [dealt(torch.randn(8, 3, 6, 6)) for _ in range(LOCAL)]
    step(optimizer, scaled(criterion(net(crops))))
