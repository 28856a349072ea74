"""A pipeline by hand whose stages are slices of a model: a rank puts some of its modules into an nn.Sequential of its
own, which numbers them from 0."""

from job import MISTAKE, RANK, RANKS, dist, nn, torch

WIDTH = 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(30, WIDTH), nn.ModuleList(Block() for _ in range(4))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 30)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


model = Model()
if RANKS > 1:
    stages = [[model.embed, *model.layers[:2]], [*model.layers[2:], model.norm, model.head]]
    model = nn.Sequential(*stages[RANK])
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    tokens, labels = torch.randint(30, (4, 6)), torch.randint(30, (4, 6))
    optimizer.zero_grad()
    hidden = torch.empty(4, 6, WIDTH, requires_grad=RANK > 0)
    if RANK > 0:
        dist.recv(hidden.data, 0)
    output = model(hidden if RANK > 0 else tokens)
    if RANK < RANKS - 1:
        dist.send(output.detach(), 1)
        gradient = torch.empty_like(output)
        dist.recv(gradient, 1)
        output.backward(gradient * 1.01 if MISTAKE == "sent" else gradient)
    else:
        loss = nn.functional.cross_entropy(output.flatten(0, 1), labels.flatten())
        (loss * 1.01 if MISTAKE == "scale" else loss).backward()
        if RANK > 0:
            dist.send(hidden.grad, 0)
    optimizer.step()
