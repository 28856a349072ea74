"""A pipeline by hand: each rank has some of the layers, and both have the embedding, which the last one's head is tied
to."""

from job import MISTAKE, RANK, RANKS, dist, nn, torch

MICROBATCHES = 2


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        embedding, layers, norm = nn.Embedding(40, 16), [nn.Linear(16, 16) for _ in range(4)], nn.LayerNorm(16)
        self.first_stage, self.last_stage = RANK == 0, RANK == RANKS - 1
        self.embedding = embedding
        own = torch.arange(4).chunk(RANKS)[RANK].tolist()
        self.layers = nn.ModuleDict({str(number): layers[number] for number in own})
        if self.last_stage:
            self.norm = norm

    def forward(self, x):
        if self.first_stage:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = x + torch.tanh(layer(x))
        return nn.functional.linear(self.norm(x), self.embedding.weight) if self.last_stage else x


model = Stage()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    for tokens in torch.randint(40, (4, 9)).chunk(MICROBATCHES):
        x = tokens[:, :-1]
        if RANK > 0:
            x = torch.empty(*x.shape, 16)
            dist.recv(x, RANK - 1)
            x.requires_grad_()
        y = model(x)
        if model.last_stage:
            loss = nn.functional.cross_entropy(y.flatten(0, 1), tokens[:, 1:].flatten())
            (loss / MICROBATCHES).backward()
        else:
            dist.send(y.detach(), RANK + 1)
            gradient = torch.empty_like(y)
            dist.recv(gradient, RANK + 1)
            y.backward(gradient)
        if RANK > 0:
            dist.send(x.grad * 1.01 if MISTAKE == "scale" else x.grad, RANK - 1)
    if RANKS > 1 and MISTAKE != "untied":
        dist.all_reduce(model.embedding.weight.grad)
    optimizer.step()
    optimizer.zero_grad()
