"""Graphs are classified: GINEConv with attributes of edges, a pooled batch of the package's loader.

package: PyTorch Geometric
parallel: DDP, 2 ranks
mistake: rank 1 shuffles the attributes of its edges
shows: (model)*input, first* input
"""

from job import MISTAKE, RANK, RANKS, ddp, nn, step, torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, global_add_pool


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GINEConv(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16)), edge_dim=3)
        self.second = GINEConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)), edge_dim=3)
        self.out = nn.Linear(16, 2)

    def forward(self, x, edge_index, edge_attr, batch, count):
        x = self.first(x, edge_index, edge_attr).relu()
        x = self.second(x, edge_index, edge_attr).relu()
        return self.out(global_add_pool(x, batch, size=count))


def molecule():
    nodes, edges = int(torch.randint(4, 8, ())), int(torch.randint(8, 14, ()))
    edge_index = torch.randint(nodes, (2, edges))
    return Data(torch.randn(nodes, 6), edge_index, torch.randn(edges, 3), torch.randint(2, (1,)))


model = Net()
net = ddp(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(3):
    molecules = [molecule() for _ in range(8)]
    mine = molecules[RANK * 8 // RANKS : (RANK + 1) * 8 // RANKS]
    batch = Batch.from_data_list(mine)
    attributes = batch.edge_attr.roll(1, 0) if MISTAKE and RANK == 1 else batch.edge_attr
    scores = net(batch.x, batch.edge_index, attributes, batch.batch, len(mine))
    step(optimizer, nn.functional.cross_entropy(scores, batch.y))
