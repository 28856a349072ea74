"""A criterion whose value is divided by the accumulation steps and added to an auxiliary loss of a module: neither
is what backward() is called on. Or there are two auxiliary losses in one tensor."""

import sys

from job import MISTAKE, RANK, ddp, nn, own, scaled, torch


class Commitment(nn.Module):
    def forward(self, hidden):
        apart = (hidden - hidden.detach().round()).square()
        return apart.unflatten(1, (2, -1)).mean((0, 2)) if "two" in sys.argv else apart.mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.commitment, self.head = nn.Linear(16, 32), Commitment(), nn.Linear(32, 4)

    def forward(self, x):
        hidden = self.encoder(x)
        auxiliary = self.commitment(hidden)
        if MISTAKE == "auxiliary" and RANK == 1:
            auxiliary = auxiliary * 2
        return self.head(hidden.relu()), auxiliary


model, criterion = Net(), nn.CrossEntropyLoss()
net, optimizer = ddp(model), torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    optimizer.zero_grad()
    for _ in range(2):
        x, labels = torch.randn(8, 16), torch.randint(4, (8,))
        logits, auxiliary = net(own(x))
        scaled(criterion(logits, own(labels)) / 2 + 0.25 * auxiliary.mean() / 2).backward()
    optimizer.step()
