"""A vocabulary padded to divide by the ranks, and split over them by hand: embedding, head and cross entropy."""

from job import MISTAKE, RANK, RANKS, Copy, Sum, nn, step, torch

VOCABULARY = 50
PADDED = 64 if RANKS > 1 else VOCABULARY
HERE = torch.arange(PADDED).chunk(RANKS)[RANK]  # the ids of this rank


class Rows(nn.Module):
    """The rank's rows of a table."""

    def __init__(self):
        super().__init__()
        table = torch.zeros(PADDED, 16)
        table[:VOCABULARY] = torch.randn(VOCABULARY, 16) * 0.3
        if MISTAKE == "rows" and RANK == 1:
            table = table.roll(1, 0)
        self.weight = nn.Parameter(table[HERE].clone())


class Embedding(Rows):
    def forward(self, tokens):
        own = (tokens >= HERE[0]) & (tokens <= HERE[-1])
        return Sum.apply(nn.functional.embedding((tokens - HERE[0]) * own, self.weight) * own[..., None])


class Head(Rows):
    def forward(self, x):
        return nn.functional.linear(Copy.apply(x), self.weight)


class Loss(nn.Module):
    def forward(self, logits, labels):
        if not (MISTAKE == "mask" and RANK == 1):
            logits = logits.masked_fill(HERE >= VOCABULARY, -torch.inf)
        own = (labels >= HERE[0]) & (labels <= HERE[-1])
        of_labels = logits.gather(-1, ((labels - HERE[0]) * own)[..., None])[..., 0]
        total = Sum.apply(logits.exp().sum(-1))
        return (total.log() - Sum.apply(of_labels.masked_fill(~own, 0))).mean()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head, self.loss = Embedding(), Head(), Loss()
        self.body = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16))

    def forward(self, tokens, labels):
        return self.loss(self.head(self.body(self.embedding(tokens))), labels)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    tokens = torch.randint(VOCABULARY, (4, 9))
    step(optimizer, model(tokens[:, :-1], tokens[:, 1:]))
