"""Nodes of one graph are classified; each rank takes the loss of its training nodes.

package: PyTorch Geometric
parallel: DDP, 2 ranks
mistake: on rank 1 the first convolution adds no self-loops
shows: conv1* input, conv1* output
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv, GCNConv, GraphNorm
from torch_geometric.utils import to_undirected

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(10, 16, add_self_loops=not MISTAKE or RANK == 0)
        self.norm = GraphNorm(16)
        self.conv2 = GATv2Conv(16, 8, heads=2)
        self.out = nn.Linear(16, 5)

    def forward(self, data):
        x = F.elu(self.norm(self.conv1(data.x, data.edge_index)))
        x = F.elu(self.conv2(x, data.edge_index))
        return self.out(x)


g = torch.Generator().manual_seed(1)
edges = to_undirected(torch.randint(60, (2, 150), generator=g))
data = Data(x=torch.randn(60, 10, generator=g), edge_index=edges, y=torch.randint(5, (60,), generator=g))
train = torch.randperm(60, generator=g)[:40]
model = Net()
model = ddp(model)
opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for step in range(3):
    mine = train.chunk(RANKS)[RANK]
    opt.zero_grad()
    out = model(data)
    loss = F.cross_entropy(out[mine], data.y[mine])
    loss.backward()
    opt.step()
