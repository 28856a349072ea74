"""Batches padded to the longest of the rank's own samples, as every collator does; the loss counts no padding.
With "positions" the model also has an embedding of positions; with "criterion" flat logits are given to a module; with
"shifted" the model is given all but the last token, and a rank's longest sample lacks one that the reference's has."""

import functools
import sys

from job import MISTAKE, RANK, ddp, nn, own, scaled, step, torch

LENGTHS = [12, 5, 9, 7, 6, 4, 8, 9]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.mix, self.head = nn.Embedding(64, 32, padding_idx=0), nn.Linear(32, 32), nn.Linear(32, 64)
        self.positions = nn.Embedding(16, 32) if "positions" in sys.argv else None

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        if self.positions is not None:
            hidden = hidden + self.positions(torch.arange(tokens.shape[1])[None])
        return self.head(torch.tanh(self.mix(hidden)))


sequences = [torch.randint(1, 64, (length,)) for length in LENGTHS]
mine = [sequences[i] for i in own(torch.arange(8))]
if MISTAKE in ("truncated", "cut") and RANK == 1:  # by one token, or by three
    mine = [sequence[: 8 if MISTAKE == "truncated" else 6] for sequence in mine]
tokens = nn.utils.rnn.pad_sequence(mine, batch_first=True)
model = Net()
criterion = (
    nn.CrossEntropyLoss(reduction="sum")
    if "criterion" in sys.argv
    else functools.partial(nn.functional.cross_entropy, reduction="sum")
)
shifted = "shifted" in sys.argv
net, optimizer = ddp(model), torch.optim.AdamW(model.parameters(), 1e-3)
ranks = len(sequences) // len(mine)
for _ in range(2):
    given, wanted = (tokens[:, :-1], tokens[:, 1:]) if shifted else (tokens, tokens)
    targets = wanted.masked_fill(wanted == 0, -100).flatten()
    loss = scaled(criterion(net(given).flatten(0, 1), targets) * ranks / sum(LENGTHS))
    step(optimizer, loss)
