"""Constants that a model keeps beside its parameters: which rows of the batch are the rank's, with which nothing
computes, and positions. Gradients are averaged by hand, so that nobody makes buffers equal."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, scaled, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.places, self.head = nn.Embedding(32, 16), nn.Embedding(16, 16), nn.Linear(16, 4)
        self.register_buffer("first_row", torch.tensor(RANK * 8 // RANKS))
        start = 3 if MISTAKE == "start" and RANK == 1 else 0
        self.register_buffer("positions", torch.arange(start, start + 6))
        self.register_buffer("unused", torch.arange(9) + (2 if MISTAKE == "unused" and RANK == 1 else 0))

    def forward(self, tokens):
        return self.head(torch.tanh(self.embedding(tokens) + self.places(self.positions)).mean(1))


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    tokens, labels = torch.randint(32, (8, 6)), torch.randint(4, (8,))
    optimizer.zero_grad()
    scaled(nn.functional.cross_entropy(model(own(tokens)), own(labels))).backward()
    for parameter in model.parameters() if RANKS > 1 else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS
    optimizer.step()
