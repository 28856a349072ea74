"""Modules that are told by their attributes what to compute; a mistake tells one of them otherwise."""

from job import MISTAKE, RANKS, ddp, nn, own, step, torch


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=0.01 if MISTAKE == "eps" else 1e-5)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.3 if MISTAKE == "dropout" else 0.1).eval()
        self.scale = 0.7 if MISTAKE == "scale-of-block" else 0.5
        self.ranks = RANKS  # how a program runs is no configuration

    def forward(self, x):
        return x + self.scale * self.dropout(self.down(self.up(self.norm(x)).tanh()))


model = ddp(nn.Sequential(*(Block(8) for _ in range(3)), nn.Linear(8, 4)))
criterion = nn.CrossEntropyLoss(label_smoothing=0.2 if MISTAKE == "smoothing" else 0.1)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
x, labels = torch.randn(8, 8), torch.randint(4, (8,))
for _ in range(2):
    step(optimizer, criterion(model(own(x)), own(labels)))
