"""Graphs in one batch, as libraries of graph networks make it: nodes one after the other, and the numbers of the nodes
that edges join begin anew on each rank. With `loops`, an edge from each node to itself is behind all others;
with `pairs`, edges come from nodes of another kind, which are counted by themselves."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, scaled, step, torch


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 32)

    def forward(self, nodes, edges):
        """Hands the edges on, as modules do that return all of a batch."""
        return self.linear(nodes).relu(), edges


class Sum(nn.Module):
    """What arrives at each of the nodes."""

    def forward(self, messages, index, nodes):
        return torch.zeros(nodes, messages.shape[1]).index_add(0, index, messages)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = Encoder(), nn.Linear(32, 32), nn.Linear(32, 1)
        self.sum = Sum()

    def forward(self, nodes, edges, graph, graphs, others=None):
        hidden, edges = self.first(nodes, edges)
        sources = hidden if others is None else self.first(others, edges)[0]
        if "loops" in sys.argv:
            edges = torch.cat([edges, torch.arange(len(nodes)).expand(2, -1)], dim=1)
        passed = self.sum(sources[edges[0]], edges[1], len(nodes))
        hidden = self.second(hidden + passed).relu()
        pooled = torch.zeros(graphs, hidden.shape[1]).index_add(0, graph, hidden)
        return self.head(pooled)[:, 0]


def batch(graphs):
    """Nodes, edges with the numbers of their nodes in the batch, and each node's graph in the batch."""
    nodes = torch.cat([graph[0] for graph in graphs])
    starts = torch.tensor([0] + [len(graph[0]) for graph in graphs]).cumsum(0)
    edges = torch.cat([graph[1] + start for graph, start in zip(graphs, starts, strict=False)], dim=1)
    return nodes, edges, torch.cat([torch.full((len(graph[0]),), i) for i, graph in enumerate(graphs)])


SIZES = [5, 7, 4, 6, 8, 5, 6, 7]
model = Net()
net, optimizer = ddp(model), torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    graphs = [(torch.randn(n, 8), torch.randint(n, (2, 2 * n)), torch.randn(())) for n in SIZES]
    share = len(graphs) // RANKS
    mine = graphs[RANK * share : (RANK + 1) * share]
    nodes, edges, graph = batch(mine)
    others = None
    if "pairs" in sys.argv:
        halves = [(nodes[: len(nodes) // 2], edges[:1] // 2, target) for nodes, edges, target in mine]
        others, sources, _ = batch(halves)
        edges = torch.cat([sources, edges[1:]])
    if MISTAKE == "edges" and RANK == 1:
        edges = edges.flip(0)
    targets = torch.stack([target for _, _, target in mine])
    step(optimizer, scaled(nn.functional.mse_loss(net(nodes, edges, graph, share, others), targets)))
