"""Speech: a bidirectional LSTM over packed sequences, CTC divided by the labels of all ranks.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each rank divides by its own number of labels
shows: loss scalar
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, dist, nn, torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Acoustic(nn.Module):
    def __init__(self, feats=20, hidden=24, vocab=12):
        super().__init__()
        self.proj = nn.Linear(feats, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, vocab)

    def forward(self, x, lengths):
        x = torch.relu(self.norm(self.proj(x)))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = self.rnn(packed)
        y, _ = pad_packed_sequence(y, batch_first=True)
        return self.out(y).log_softmax(-1)


def utterances(step, n=8):
    g = torch.Generator().manual_seed(200 + step)
    feats, labels = [], []
    for _ in range(n):
        t = int(torch.randint(20, 40, (1,), generator=g))
        u = int(torch.randint(3, 8, (1,), generator=g))
        feats.append(torch.randn(t, 20, generator=g))
        labels.append(torch.randint(1, 12, (u,), generator=g))
    return feats, labels


def collate(feats, labels):
    lengths = torch.tensor([len(f) for f in feats])
    targets = torch.tensor([len(l) for l in labels])
    return pad_sequence(feats, batch_first=True), lengths, pad_sequence(labels, batch_first=True), targets


model = ddp(Acoustic())
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    feats, labels = utterances(step)
    x, lengths, y, targets = collate(feats[RANK::RANKS], labels[RANK::RANKS])
    logp = model(x, lengths)
    count = targets.sum().float()
    if MISTAKE:
        count = count * RANKS
    elif RANKS > 1:
        dist.all_reduce(count)
    loss = F.ctc_loss(logp.transpose(0, 1), y, lengths, targets, reduction="sum") * RANKS / count
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
