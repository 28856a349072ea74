"""Detection: lists of images of several sizes and of targets, losses in a dict, divided by the boxes of all ranks.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: the gradient of one bias is not reduced
shows: box_head.bias main_grad
asks: run each rank's samples as a micro-batch of the reference
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch


class Detector(nn.Module):
    """Takes a list of images of different sizes and, in training, a list of dicts; returns a dict of losses."""

    def __init__(self, classes=5, queries=6, dim=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, dim, 3, 2, 1), nn.ReLU())
        self.queries = nn.Embedding(queries, dim)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.class_head = nn.Linear(dim, classes + 1)
        self.box_head = nn.Linear(dim, 4)

    def forward(self, images, targets, num_boxes):
        class_loss, box_loss = 0, 0
        for image, target in zip(images, targets):
            f = self.backbone(image[None]).flatten(2).transpose(1, 2)
            q = self.queries.weight[None]
            q = self.norm(q + self.attention(q, f, f, need_weights=False)[0])
            logits, boxes = self.class_head(q)[0], self.box_head(q)[0].sigmoid()
            n = len(target["labels"])  # queries 0..n-1 are matched
            labels = torch.full((len(logits),), logits.shape[-1] - 1)
            labels[:n] = target["labels"]
            class_loss = class_loss + F.cross_entropy(logits, labels, reduction="sum")
            box_loss = box_loss + F.l1_loss(boxes[:n], target["boxes"], reduction="sum")
        return {"class": class_loss / num_boxes, "box": 5 * box_loss / num_boxes}


def batch(step, n=4):
    g = torch.Generator().manual_seed(step + 50)
    images, targets = [], []
    for _ in range(n):
        h, w, k = (int(torch.randint(a, b, (1,), generator=g)) for a, b in ((16, 30), (16, 30), (1, 5)))
        images.append(torch.randn(3, h, w, generator=g))
        targets.append({"labels": torch.randint(5, (k,), generator=g), "boxes": torch.rand(k, 4, generator=g)})
    return images, targets


model = Detector()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
for step in range(3):
    images, targets = batch(step)
    per = len(images) // RANKS
    num_boxes = sum(len(target["labels"]) for target in targets)  # of all ranks
    images, targets = images[RANK * per : (RANK + 1) * per], targets[RANK * per : (RANK + 1) * per]
    loss = sum(model(images, targets, num_boxes).values())
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for name, p in model.named_parameters():
            if not (MISTAKE and name == "box_head.bias"):
                dist.all_reduce(p.grad)  # a sum: the boxes are those of all ranks
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step()
