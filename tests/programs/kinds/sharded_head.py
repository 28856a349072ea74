"""A classifier over so many classes that each rank has some of them, behind a backbone in DDP: features of all ranks'
samples come to the head, whose gradients nothing averages, and go back times the number of ranks, as DDP divides."""

from job import MISTAKE, RANKS, Sum, ddp, gathered, nn, own, scaled, step, summed, torch

CLASSES = 12


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(context, features):
        return gathered(features)

    @staticmethod
    def backward(context, gradient):
        return own(gradient if MISTAKE == "own" else summed(gradient)) * RANKS


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(own(torch.randn(CLASSES, 8) / 3).clone())

    def forward(self, features, labels):
        features, labels = (Gather.apply(features), gathered(labels)) if RANKS > 1 else (features, labels)
        here = labels[:, None] == own(torch.arange(CLASSES))
        wrong = (features @ self.weight.T - here.float()).square().sum() / len(features)
        return Sum.apply(wrong) if RANKS > 1 else wrong


backbone, head = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), Head()
net = ddp(backbone)
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=1e-2)
data, labels = torch.randn(3, 8, 6), torch.randint(CLASSES, (3, 8))
for x, y in zip(data, labels, strict=True):
    step(optimizer, scaled(head(net(own(x)), own(y))))
