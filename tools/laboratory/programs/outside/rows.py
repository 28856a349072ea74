"""Tables whose rows are reduced by themselves: only those that a rank's samples touch (a recommender's, SparseAdam),
with a replay buffer, whose samples come again in later steps."""

from job import MISTAKE, RANK, RANKS, nn, own, summed, torch


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(32, 16, sparse=True)
        self.head = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, rows):
        return self.head(self.table(rows).mean(1))[:, 0]


model = Recommender()
table, head = model.table, model.head
of_table = torch.optim.SparseAdam(table.parameters(), 1e-2)
of_head = torch.optim.Adam(head.parameters(), 1e-2)
generator = torch.Generator().manual_seed(3)
replay = []
for step in range(3):
    # Rare rows, from 24 on, are met from the second step on.
    rows = torch.randint(24 if step == 0 else 32, (8, 3), generator=generator)
    wanted = torch.randn(8, generator=generator)
    replay.append((rows, wanted))
    kept, kept_wanted = replay[0 if MISTAKE == "oldest-sample-again" and RANK == 1 else max(0, step - 1)]
    if MISTAKE == "own-samples-of-replay" and step == 1:
        kept = kept.roll(4, 0)
    rows, wanted = own(torch.cat([rows, kept], 1)), own(wanted + kept_wanted)
    loss = (model(rows) - wanted).square().mean()
    of_table.zero_grad()
    of_head.zero_grad()
    loss.backward()
    for parameter in head.parameters():
        parameter.grad = summed(parameter.grad) / RANKS
    gradient = table.weight.grad.coalesce()
    dense = gradient.to_dense()
    if MISTAKE == "rare-rows-unreduced":
        rare = dense[24:].clone()
        dense = summed(dense) / RANKS
        dense[24:] = rare
    else:
        dense = summed(dense) / RANKS
    touched = dense.abs().sum(1).nonzero()[:, 0]
    table.weight.grad = torch.sparse_coo_tensor(touched[None], dense[touched], dense.shape).coalesce()
    if MISTAKE == "rows-state-lost" and step == 1:
        of_table.state[table.weight]["exp_avg_sq"].zero_()
    of_table.step()
    of_head.step()
