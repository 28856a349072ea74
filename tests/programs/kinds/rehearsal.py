"""A model whose size is found by a dry run in __init__, and that is looked at before it is wrapped."""

import sys

from job import ddp, nn, own, scaled, step, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(self.body(torch.zeros(1, 1, 16, 16)).shape[1], 4)

    def forward(self, images):
        return self.head(self.body(images))


net = Net()
if "look" in sys.argv:
    assert net(torch.zeros(2, 1, 16, 16)).shape == (2, 4)
model = ddp(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
images, labels = torch.randn(8, 1, 16, 16), torch.randint(4, (8,))
for _ in range(2):
    step(optimizer, scaled(nn.functional.cross_entropy(model(own(images)), own(labels))))
