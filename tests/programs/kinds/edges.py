"""A graph whose nodes are dealt out over ranks: each has the edges that end in its own, which it numbers from 0.
Nothing says which of all edges they are."""

from job import MISTAKE, RANK, RANKS, Gather, dist, nn, own, torch

NODES = 16


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 4)
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x, source, target):
        mine = self.lin(x)
        every = Gather.apply(mine) if RANKS > 1 else mine
        return torch.zeros_like(mine).index_add(0, target, (every * self.weight).tanh()[source])


net = Conv()
optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
x, wanted, edges = torch.randn(NODES, 6), torch.randn(NODES, 4), torch.randint(NODES, (2, 60))
size = NODES // RANKS
source, target = edges[:, edges[1] // size == RANK]
for _ in range(2):
    optimizer.zero_grad()
    made = net(own(x), source, target - RANK * size)
    ((made - own(wanted)).square().sum() / NODES).backward()
    for name, parameter in net.named_parameters():
        if RANKS > 1 and not (MISTAKE == "unreduced" and name == "weight"):
            dist.all_reduce(parameter.grad)
    optimizer.step()
