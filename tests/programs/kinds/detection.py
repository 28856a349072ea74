"""A model that takes a list of images of unlike sizes, and the targets of each: as detectors do. With "by-hand" its
gradients are averaged by the program itself."""

import sys

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, ddp, nn, scaled, torch


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU()), nn.Linear(8, 5)

    def forward(self, images, targets):
        found = torch.stack([self.head(self.backbone(image[None]).mean((2, 3)))[0] for image in images])
        wanted = torch.stack([target["boxes"] for target in targets])
        labels = torch.stack([target["label"] for target in targets])
        boxes = nn.functional.smooth_l1_loss(found[:, :4], wanted)
        return {"boxes": boxes, "label": nn.functional.binary_cross_entropy_with_logits(found[:, 4], labels)}


SIZES = [(16, 20), (24, 16), (20, 20), (16, 28), (28, 16), (20, 24), (24, 24), (16, 16)]
model = Detector()
is_by_hand = "by-hand" in sys.argv
net, optimizer = model if is_by_hand else ddp(model), torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
share = len(SIZES) // RANKS
for _ in range(2):
    images = [torch.randn(3, *size) for size in SIZES]
    targets = [{"boxes": torch.rand(4), "label": torch.randint(2, ()).float()} for _ in SIZES]
    mine = slice(RANK * share, (RANK + 1) * share)
    own_targets = targets[mine]
    if MISTAKE == "targets" and RANK == 1:
        own_targets = own_targets[::-1]
    optimizer.zero_grad()
    scaled(sum(net(images[mine], own_targets).values())).backward()
    for parameter in model.parameters() if is_by_hand and RANKS > 1 else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS
    optimizer.step()
