"""What functions draw in a forward, of which no module's class tells: dropout, attention's own, noise, drop-path,
Gumbel. Ranks draw for their own samples. With "recomputed" the backward draws again."""

import sys

from job import MISTAKE, RANK, ddp, nn, own, scaled, step, torch
from torch.utils.checkpoint import checkpoint

kind = sys.argv[1]
functional = nn.functional


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        hidden = self.first(x).relu()
        draws = MISTAKE != "none-drawn"
        if kind in ("dropout", "recomputed"):
            hidden = functional.dropout(hidden, 0.1, draws)
        elif kind == "noise" and draws:
            hidden = hidden + 0.1 * torch.randn_like(hidden)
        elif kind == "gumbel":
            hidden = functional.gumbel_softmax(hidden) if draws else hidden.softmax(-1)
        elif kind == "drop-path":
            kept = torch.rand(len(x), 1, 1) < 0.5 if draws else 1
            return x + self.second(hidden) * kept / 0.5
        elif kind == "attention":
            hidden = functional.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=0.2 if draws else 0)
        return x + self.second(hidden)


class Recomputed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=True, preserve_rng_state=MISTAKE != "redrawn")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block, self.head = nn.Linear(8, 16), Block(), nn.Linear(16, 4)
        if kind == "recomputed":
            self.block = Recomputed(self.block)

    def forward(self, x):
        hidden = self.embed(x)
        if MISTAKE == "early" and RANK == 1:
            hidden = hidden * 1.01
        return self.head(self.block(hidden))


model = Net()
net, optimizer = ddp(model), torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    x, labels = torch.randn(8, 5, 8), torch.randint(4, (8,))
    if MISTAKE == "unreduced":
        net.require_backward_grad_sync = False
    step(optimizer, scaled(functional.cross_entropy(net(own(x)).mean(1), own(labels))))
