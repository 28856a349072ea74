"""What differs by design: BatchNorm takes each rank's own statistics, unless it is frozen, and Dropout draws numbers
of its own."""

import sys

from job import MISTAKE, ddp, nn, own, scaled, step, torch

kind = sys.argv[1]
layer = {"batch-norm": nn.BatchNorm1d(32), "frozen": nn.BatchNorm1d(32), "dropout": nn.Dropout(0.1)}[kind]
if kind == "frozen" and MISTAKE != "trains":
    layer.eval()
model = nn.Sequential(nn.Linear(16, 32), layer, nn.ReLU(), nn.Linear(32, 4))
net, optimizer = ddp(model), torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    if MISTAKE == "unreduced":
        net.require_backward_grad_sync = False
    step(optimizer, scaled(nn.functional.cross_entropy(net(own(x)), own(labels))))
