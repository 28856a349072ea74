"""Heads dealt out over ranks, and one key that all share, as in multi-query attention: each rank has a term of its
gradient, which the program sums before the step."""

from job import MISTAKE, RANK, RANKS, Copy, Sum, nn, summed, torch


def part(inputs, outputs, dim):
    """The rank's rows or columns of a weight."""
    linear = nn.Linear(inputs, outputs, bias=False)
    linear.weight = nn.Parameter(linear.weight.data.chunk(RANKS, dim)[RANK].clone())
    return linear


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.key = nn.LayerNorm(16), nn.Linear(16, 8, bias=False)
        self.query, self.value, self.out = part(16, 32, 0), part(16, 32, 0), part(32, 16, 1)

    def forward(self, x):
        hidden = self.norm(x)
        hidden = Copy.apply(hidden) if RANKS > 1 else hidden
        heads = self.query(hidden).unflatten(-1, (-1, 8)) * self.key(hidden).unsqueeze(-2)
        mixed = self.out(torch.tanh(heads).flatten(-2) * self.value(hidden))
        return x + (Sum.apply(mixed) if RANKS > 1 else mixed)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.Sequential(Layer(), Layer()), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.layers(x))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    x, labels = torch.randn(6, 16), torch.randint(4, (6,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), labels).backward()
    for number, layer in enumerate(model.layers):
        if MISTAKE != "unreduced" or number == 0:
            layer.key.weight.grad = summed(layer.key.weight.grad)
    optimizer.step()
