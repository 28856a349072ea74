"""A recurrent network over packed sequences of several lengths, which are dealt out in turns. With "given" the model is
given the packed sequences themselves; with "list" it packs a list of sequences, which each rank numbers from 0."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, scaled, step, torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

LENGTHS = [7, 12, 5, 9, 8, 6, 10, 9]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.norm = nn.Linear(6, 16), nn.LayerNorm(16)
        self.rnn, self.head = nn.GRU(16, 16, num_layers=2, bidirectional=True, batch_first=True), nn.Linear(32, 4)

    def packed(self, given, lengths):
        if "given" in sys.argv:
            return given
        if "list" in sys.argv:
            return pack_sequence([self.norm(self.project(sequence)) for sequence in given], enforce_sorted=False)
        hidden = self.norm(self.project(given))
        if MISTAKE == "rows" and RANK == 1:
            hidden = hidden * 1.01
        return pack_padded_sequence(hidden, lengths, batch_first=True, enforce_sorted=False)

    def forward(self, given, lengths=None):
        outputs, _ = self.rnn(self.packed(given, lengths))
        return self.head(pad_packed_sequence(outputs, batch_first=True)[0])


wide = 16 if "given" in sys.argv else 6
sequences = [torch.randn(length, wide) for length in LENGTHS]
mine, lengths = sequences[RANK::RANKS], torch.tensor(LENGTHS[RANK::RANKS])
if "given" in sys.argv:
    batch = (pack_sequence(mine, enforce_sorted=False),)
else:
    batch = (mine,) if "list" in sys.argv else (pad_sequence(mine, batch_first=True), lengths)
model = Net()
if "given" in sys.argv:
    model.project, model.norm = None, None
net = ddp(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    outputs = net(*batch)
    mask = torch.arange(outputs.shape[1])[None] < lengths[:, None]
    step(optimizer, scaled((outputs.square().sum(-1) * mask).sum() * RANKS / sum(LENGTHS)))
