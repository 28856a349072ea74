"""Truncated backpropagation through time: the state of an LSTM is handed on to the next window.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 begins the second window with zeros
shows: (model):1* input, rnn:1* input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class LM(nn.Module):
    def __init__(self, v=50, d=24):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(v, d), nn.LSTM(d, d, 2, batch_first=True), nn.Linear(d, v)

    def forward(self, x, state=None):
        h, state = self.rnn(self.emb(x), state)
        return self.out(h), state


model = LM()
model = ddp(model)
opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
data = torch.randint(50, (8, 6 * 10 + 1), generator=torch.Generator().manual_seed(3))
n = 8 // RANKS
data = data[RANK * n : (RANK + 1) * n]
state = None
for step in range(3):
    for k in range(2):  # two windows of truncated backpropagation per step
        i = (2 * step + k) * 10
        if state is not None:
            state = tuple(s.detach() for s in state)
        if MISTAKE and RANK == 1 and k == 1:
            state = None
        logits, state = model(data[:, i : i + 10], state)
        loss = F.cross_entropy(logits.flatten(0, 1), data[:, i + 1 : i + 11].flatten()) / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    opt.step()
    opt.zero_grad()
