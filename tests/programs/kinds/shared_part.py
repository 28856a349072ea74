"""Two streams of one model: rows that ranks share out, and a table that each has whole, to which the rows add their
mean. The loss has a term of either: of the table's each rank has all. Gradients of what works on rows are summed by
hand."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, Copy, Sum, nn, own, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.table, self.bias = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 16)
        self.outer, self.of_rows, self.of_table = nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(16, 4)
        self.first = nn.Tanh()

    def forward(self, rows, table):
        table = self.first(self.table(table))
        seen = Copy.apply(table) if RANKS > 1 else table
        rows = torch.tanh(self.rows(rows) + self.bias(seen).mean(0))
        mean = rows.sum(0) / 8
        table = table + self.outer(Sum.apply(mean) if RANKS > 1 else mean)
        return self.of_rows(rows), self.of_table(table)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
whole = ("table", "outer", "of_table")
for _ in range(2):
    rows, table = own(torch.randn(8, 8)), torch.randn(6, 8)
    labels, wanted = own(torch.randint(4, (8,))), torch.randint(4, (6,))
    of_rows, of_table = model(rows, table)
    loss = nn.functional.cross_entropy(of_rows, labels, reduction="sum") / 8
    loss = loss + nn.functional.cross_entropy(of_table, wanted)
    optimizer.zero_grad()
    loss.backward()
    for name, parameter in model.named_parameters() if RANKS > 1 else ():
        if not name.startswith(whole) and (MISTAKE != "unreduced" or name != "bias.weight"):
            dist.all_reduce(parameter.grad)
    if MISTAKE == "scale" and RANK == 1:
        model.of_table.weight.grad *= 1.01
    optimizer.step()
