"""Word vectors by skip-grams: the gradients hold the rows of words that were met alone, and SparseAdam moves these."""

import contextlib

from job import MISTAKE, ddp, nn, own, torch


class SkipGram(nn.Module):
    def __init__(self, words=50, size=8):
        super().__init__()
        self.center = nn.Embedding(words, size, sparse=True)
        self.context = nn.Embedding(words, size, sparse=True)

    def forward(self, center, context):
        return torch.einsum("bd,bkd->bk", self.center(center), self.context(context))


model = ddp(SkipGram())
optimizer = torch.optim.SparseAdam(list(model.parameters()), 0.01)
for _ in range(2):
    center, context = torch.randint(50, (16,)), torch.randint(50, (16, 4))
    labels = torch.zeros(16, 4)
    labels[:, 0] = 1
    optimizer.zero_grad()
    with model.no_sync() if MISTAKE == "unreduced" else contextlib.nullcontext():
        scores = model(own(center), own(context))
        loss = nn.functional.binary_cross_entropy_with_logits(scores, own(labels))
        loss.backward()
    optimizer.step()
