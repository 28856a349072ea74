"""A detector of images of unlike sizes, whose criterion is given the targets of each image in a list and has a matcher,
which returns a list of pairs of indices: as DETR does. The samples are dealt out in turn, or with "stretches" in these.
With "untold" all targets are alike, so that no bytes say whose they are."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, scaled, step, torch

SIZES = [(16, 20), (24, 16), (20, 20), (16, 28)]
BOXES, QUERIES = 3, 6


class Batch:
    """Images in one tensor, which is no tensor to those that look on, as a class of the program's own."""

    def __init__(self, images):
        self.images = torch.zeros(len(images), 3, 28, 28)
        for padded, image in zip(self.images, images, strict=True):
            padded[:, : image.shape[1], : image.shape[2]] = image


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32), nn.ReLU())
        self.boxes, self.labels = nn.Linear(32, QUERIES * 4), nn.Linear(32, QUERIES * 5)

    def forward(self, batch):
        hidden = self.backbone(batch.images)
        boxes, labels = self.boxes(hidden).sigmoid(), self.labels(hidden)
        return {"boxes": boxes.view(-1, QUERIES, 4), "labels": labels.view(-1, QUERIES, 5)}


class Matcher(nn.Module):
    @torch.no_grad()
    def forward(self, found, targets):
        pairs = []
        for boxes, target in zip(found["boxes"], targets, strict=True):
            cost = torch.cdist(boxes, target["boxes"], p=1)
            queries, free = [], torch.zeros(QUERIES)
            for box in range(BOXES):
                query = int((cost[:, box] + free).argmin())
                free[query] = torch.inf
                queries.append(query)
            if MISTAKE == "matcher" and RANK == 1:
                queries = queries[::-1]
            pairs.append((torch.tensor(queries), torch.arange(BOXES)))
        return pairs


class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.matcher = Matcher()

    def forward(self, found, targets):
        boxes, labels = 0, 0
        pairs = self.matcher(found, targets)
        for i, (target, (queries, own)) in enumerate(zip(targets, pairs, strict=True)):
            boxes = boxes + nn.functional.l1_loss(found["boxes"][i, queries], target["boxes"][own])
            labels = labels + nn.functional.cross_entropy(found["labels"][i, queries], target["labels"][own])
        return {"boxes": boxes / len(targets), "labels": labels / len(targets)}


def own(samples):
    if "stretches" in sys.argv:
        share = len(samples) // RANKS
        return samples[RANK * share : (RANK + 1) * share]
    return samples[RANK::RANKS]


model, criterion = Detector(), Criterion()
net, optimizer = ddp(model), torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
for _ in range(2):
    images = [torch.randn(3, *size) for size in SIZES]
    targets = [{"boxes": torch.rand(BOXES, 4), "labels": torch.randint(5, (BOXES,))} for _ in SIZES]
    if "untold" in sys.argv:
        targets = [targets[0] for _ in SIZES]
    mine, wanted = own(images), own(targets)
    if MISTAKE == "targets" and RANK == 1:
        wanted = wanted[::-1]
    if MISTAKE == "labels" and RANK == 1:
        wanted = [{"boxes": a["boxes"], "labels": b["labels"]} for a, b in zip(wanted, wanted[::-1], strict=True)]
    if MISTAKE == "samples" and RANK == 1:
        mine, wanted = images[::RANKS], targets[::RANKS]
    if MISTAKE == "last" and RANK == 1:
        mine, wanted = mine[:-1], wanted[:-1]
    losses = criterion(net(Batch(mine)), wanted)
    step(optimizer, scaled(sum(losses.values())))
