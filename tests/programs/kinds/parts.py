"""DDP around each submodule, as detection and recommenders have it."""

from job import RANKS, ddp, nn, own, scaled, step, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.tower(x))


model = Net()
if RANKS > 1:
    model.tower, model.head = ddp(model.tower), ddp(model.head)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    x, labels = torch.randn(8, 1, 9, 9), torch.randint(4, (8,))
    step(optimizer, scaled(nn.functional.cross_entropy(model(own(x)), own(labels))))
