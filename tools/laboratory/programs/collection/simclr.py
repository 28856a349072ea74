"""SimCLR with the package's head and NTXentLoss, which gathers the negatives of all ranks.

package: Lightly
parallel: DDP, 2 ranks
mistake: negatives are those of each rank alone
shows: NTXentLoss* output, loss scalar
"""

import before_torchvision  # noqa: F401
from job import MISTAKE, RANKS, ddp, nn, own, step, torch
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead


class SimCLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = SimCLRProjectionHead(32, 32, 16, num_layers=2, batch_norm=False)

    def forward(self, x):
        return self.head(self.backbone(x))


model = SimCLR()
net = ddp(model)
criterion = NTXentLoss(temperature=0.5, gather_distributed=RANKS > 1 and not MISTAKE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9)
for _ in range(3):
    first, second = torch.randn(8, 3, 16, 16), torch.randn(8, 3, 16, 16)
    step(optimizer, criterion(net(own(first)), net(own(second))))
