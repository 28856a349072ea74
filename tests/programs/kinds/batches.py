"""A model whose rows do not depend on what else is in a batch, to the bit: batches.py WORDS BATCH.

WORDS is tokens or rows (of features, without a sequence); BATCH is right, left (padded there), packed, small (two rows
a call) or other (in another order, beside another sequence). MISTAKE=large_batches adds features in another order where
a batch has more than two rows, as a kernel does that is chosen by the size; MISTAKE=neighbour gives a row a little of
the one before it. On several ranks, each has some of the sequences."""

import os
import sys

import torch
from torch import nn

WORDS, BATCH = sys.argv[1:3]
MISTAKE = os.environ.get("MISTAKE", "")
WIDTH, LENGTHS = 12, (5, 3, 6, 4)


class Linear(nn.Module):
    """Adds up the features one by one: no kernel chooses an order."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        order = list(range(WIDTH))
        if MISTAKE == "large_batches" and len(x) > 2:
            order.reverse()
        total = torch.zeros_like(x)
        for i in order:
            total = total + x[..., i, None] * self.weight[:, i]
        return total


class Mean(nn.Module):
    """Of a token and those before it in its sequence, which begins where the positions do."""

    def forward(self, x, position_ids):
        columns, total = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            position = position_ids[:, t, None]
            total = torch.where(position == 0, 0, total) + x[:, t]
            columns.append(total / (position + 1))
        return torch.stack(columns, 1)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.first, self.mean, self.second = nn.Embedding(50, WIDTH), Linear(), Mean(), Linear()

    def forward(self, input_ids, position_ids, attention_mask=None):
        x = self.first(self.embed(input_ids)).relu()
        if MISTAKE == "neighbour":
            x = x + 0.01 * x.roll(1, 0)
        return self.second(self.mean(x, position_ids))


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Linear(), Linear()

    def forward(self, x):
        return self.second(self.first(x).relu())


def padded(sequences, side):
    length = max(map(len, sequences))
    ids, positions, mask = torch.zeros(3, len(sequences), length, dtype=torch.long)
    for i, tokens in enumerate(sequences):
        at = slice(0, len(tokens)) if side == "right" else slice(length - len(tokens), length)
        ids[i, at], positions[i, at], mask[i, at] = tokens, torch.arange(len(tokens)), 1
    return {"input_ids": ids, "position_ids": positions, "attention_mask": mask}


torch.manual_seed(0)
model = Tokens() if WORDS == "tokens" else Rows()
sequences = [torch.randint(1, 50, (length,)) for length in LENGTHS]
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    torch.distributed.init_process_group("gloo")
    sequences = sequences[rank::world]
rows = torch.randn(4, WIDTH)
with torch.no_grad():
    if WORDS == "rows":
        batches = {
            "right": [rows],
            "small": [rows[:2], rows[2:]],
            "other": [torch.cat([rows[2:], -rows[:1], rows[:2]])],
        }
        for batch in batches[BATCH]:
            model(batch)
    elif BATCH == "packed":
        positions = torch.cat([torch.arange(len(tokens)) for tokens in sequences])
        model(input_ids=torch.cat(sequences)[None], position_ids=positions[None])
    elif BATCH == "small":
        for two in (sequences[:2], sequences[2:]):
            model(**padded(two, "right"))
    elif BATCH == "other":
        model(**padded([sequences[3], sequences[0], torch.arange(1, 9), sequences[2], sequences[1]], "right"))
    else:
        model(**padded(sequences, BATCH))
if world > 1:
    torch.distributed.destroy_process_group()
