"""Samples of unlike lengths, one behind the other, and where each ends, from 0 on each rank: as nested tensors and
packed attention are given them. `dealt`: in turns, as a DistributedSampler deals them out."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, step, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 32), nn.Linear(32, 4)

    def forward(self, tokens, ends):
        embedded = torch.tanh(self.embed(tokens))
        sums = [embedded[a:b].mean(0) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
        return self.head(torch.stack(sums))


model = ddp(Net())
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    lengths, labels = torch.tensor([3, 5, 2, 6, 4, 4, 3, 7]), torch.randint(4, (8,))
    samples = torch.randint(16, (34,)).split(lengths.tolist())
    numbers = torch.arange(8)
    mine = (numbers[RANK::RANKS] if "dealt" in sys.argv else numbers.chunk(RANKS)[RANK]).tolist()
    tokens = torch.cat([samples[i] for i in mine])
    ends = nn.functional.pad(lengths[mine].cumsum(0), (1, 0))
    if MISTAKE == "ends" and RANK == 1:
        ends[1] += 1
    loss = nn.functional.cross_entropy(model(tokens, ends), labels[mine])
    step(optimizer, loss * 1.01 if MISTAKE == "scale" and RANK == 1 else loss)
