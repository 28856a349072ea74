"""Nodes of one graph are classified: every rank is given the whole graph, and takes the loss of its training nodes."""

from job import MISTAKE, RANK, RANKS, ddp, nn, scaled, step, torch


class Layer(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.linear = nn.Linear(inside, outside)

    def forward(self, x, edges):
        sums = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
        return self.linear(x + sums / 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(8, 16), Layer(16, 4)

    def forward(self, graph):
        return self.second(self.first(graph.x, graph.edges).tanh(), graph.edges)


class Graph:  # no container that a recorder knows
    def __init__(self):
        self.x, self.edges = torch.randn(40, 8), torch.randint(40, (2, 120))


graph, labels, nodes = Graph(), torch.randint(4, (40,)), torch.randperm(40)[:24]
if MISTAKE == "edges" and RANK == 1:
    graph.edges = graph.edges[:, :-1]
model = ddp(Net())
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
mine = nodes.chunk(RANKS)[0 if MISTAKE == "nodes" else RANK]
for _ in range(2):
    step(optimizer, scaled(nn.functional.cross_entropy(model(graph)[mine], labels[mine])))
