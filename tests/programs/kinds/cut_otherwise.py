"""A batch that several ranks run in micro-batches, and one process in one piece: who saves memory does so. Arguments:
`striped` deals samples out in turns, `uneven` in micro-batches of unlike sizes, `sum` adds losses up, `tokens` are
sequences, whose logits are flat, `reference` cuts the batch of the one process instead, `crossing` has both cut it,
with other samples in each, `balance` is of all samples of a call, and no part of the loss, `counted` is a model that
returns its own loss, of the labels that count, which the program weighs by these, and `mixed` mixes samples."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, scaled, torch

CHOICE = sys.argv[1] if len(sys.argv) > 1 else ""


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(12, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, tokens):
        return self.head(torch.tanh(self.mix(self.embed(tokens)))).flatten(0, 1)


class Balance(nn.Module):
    def forward(self, scores):
        return scores.softmax(-1).mean(0).square().sum()


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, inputs, labels):
        return nn.functional.cross_entropy(self.body(inputs), labels, ignore_index=-1)


def mixed(samples: torch.Tensor) -> torch.Tensor:
    return 0.75 * samples + 0.25 * samples.flip(0)


def parts(batch: torch.Tensor, mistake: str) -> list[torch.Tensor]:
    """The rank's micro-batches; by `mistake` those of rank 0."""
    stretch = batch.chunk(RANKS)[0 if mistake == MISTAKE else RANK]
    if CHOICE == "reference":
        return list(batch.split(2)) if RANKS == 1 else [stretch]
    if RANKS == 1:
        return list(batch.split(2)) if CHOICE == "crossing" else [batch]
    mine = batch[RANK::RANKS] if CHOICE in ("striped", "crossing") else stretch
    return list(mine.split((3, 1) if CHOICE == "uneven" else 2))


models = {"tokens": Tokens, "counted": Counted}
model = models[CHOICE]() if CHOICE in models else nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
net, balance = ddp(model), Balance()
criterion = nn.CrossEntropyLoss(reduction="sum" if CHOICE in ("sum", "uneven") else "mean")
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    data = torch.randint(12, (8, 6)) if CHOICE == "tokens" else torch.randn(8, 16)
    labels = torch.randint(4, (8, 6) if CHOICE == "tokens" else (8,))
    if CHOICE == "counted":
        labels[[0, 4]] = -1
    if CHOICE == "mixed" and MISTAKE != "mixed":
        data = mixed(data)
    pieces = parts(data, "samples")
    if MISTAKE == "mixed":
        pieces = [mixed(piece) for piece in pieces]
    count = (labels >= 0).sum()
    optimizer.zero_grad()
    for piece, (inputs, wanted) in enumerate(zip(pieces, parts(labels, "labels"), strict=True)):
        if MISTAKE == "dropped" and piece == 1:
            break
        if CHOICE == "counted":
            share = 1 / (RANKS * len(pieces)) if MISTAKE == "alike" else (wanted >= 0).sum() / count
            (net(inputs, wanted) * share * RANKS).backward()
            continue
        scores = net(inputs)
        loss = scaled(criterion(scores, wanted.flatten()))
        if CHOICE == "balance":
            balance(scores)
        if CHOICE in ("sum", "uneven"):  # DDP takes the mean of the ranks'
            loss = loss * RANKS / 8
        elif MISTAKE != "divisor":
            loss = loss / len(pieces)
        loss.backward()
    if MISTAKE == "weight" and RANK == 1:
        with torch.no_grad():
            next(model.parameters())[0] *= 1.01
    optimizer.step()
