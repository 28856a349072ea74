"""Sentences of unlike lengths, dealt in turns, whose words a model returns one behind the other: of a list of them, of
the positions that a mask picks ("picked"), or of sequences that it packs ("packed": step by step)."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, step, summed, torch

rnn = nn.utils.rnn
how = sys.argv[1] if len(sys.argv) > 1 else "list"


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.tagger, self.head = nn.Embedding(40, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, sentences, chosen=None):
        if how == "picked":
            return self.head(self.tagger(self.embed(sentences))[0][chosen != -100])
        words = [self.embed(sentence) for sentence in sentences]
        states = self.tagger(rnn.pack_sequence(words, enforce_sorted=False))[0]
        if how == "packed":
            return self.head(states.data)
        padded, lengths = rnn.pad_packed_sequence(states, batch_first=True)
        return torch.cat([self.head(padded[i, :length]) for i, length in enumerate(lengths)])


def targets_of(sentences, tags):
    if how == "packed":
        return rnn.pack_sequence([tags[sentence] for sentence in sentences], enforce_sorted=False).data
    return torch.cat([tags[sentence] for sentence in sentences])


model, tags = ddp(Tagger()), torch.randint(5, (40,))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(2):
    sentences = [torch.randint(40, (length,)) for length in (3, 7, 4, 6, 5, 3, 8, 2)][RANK::RANKS]
    if how == "picked":
        padded = rnn.pad_sequence(sentences, batch_first=True)
        padded = nn.functional.pad(padded, (0, 8 - padded.shape[1]))
        chosen = torch.where(padded % 4 == 0, -100, padded)
        logits, targets = model(padded, chosen), tags[chosen[chosen != -100]]
    else:
        logits, targets = model(sentences), targets_of(sentences, tags)
    if MISTAKE == "shifted" and RANK == 1:
        targets = targets.roll(1)
    loss = nn.functional.cross_entropy(logits, targets, reduction="sum") * RANKS
    words = summed(torch.tensor(len(targets)))
    step(optimizer, loss / (len(targets) * RANKS if MISTAKE == "own" and RANK == 1 else words))
