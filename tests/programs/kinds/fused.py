"""Tensor parallelism by hand of fused projections: query, key and value of grouped-query attention in one matrix, gate
and up in another, of each of which a rank has its share."""

from job import MISTAKE, RANK, RANKS, Copy, Sum, nn, step, torch

WIDTH, HEADS, KEYS = 32, 4, 2
SIZE = WIDTH // HEADS


class Column(nn.Module):
    """A linear whose output is `blocks`, one behind the other; a rank has its share of each."""

    def __init__(self, blocks):
        super().__init__()
        whole = nn.Linear(WIDTH, sum(blocks))
        nn.init.zeros_(whole.bias)
        place = 0 if MISTAKE == "rows" else RANK

        def share(parameter):
            return torch.cat([block.chunk(RANKS)[place] for block in parameter.detach().split(blocks)])

        self.weight, self.bias = nn.Parameter(share(whole.weight)), nn.Parameter(share(whole.bias))

    def forward(self, x):
        return nn.functional.linear(Copy.apply(x), self.weight, self.bias)


class Row(nn.Module):
    def __init__(self, width):
        super().__init__()
        whole = nn.Linear(width, WIDTH)
        self.weight = nn.Parameter(whole.weight.detach().chunk(RANKS, 1)[RANK].clone())
        self.bias = nn.Parameter(whole.bias.detach().clone())

    def forward(self, x):
        return Sum.apply(nn.functional.linear(x, self.weight)) + self.bias


class Gated(nn.Module):
    def forward(self, x):
        gate, up = x.chunk(2, -1)
        return nn.functional.silu(gate) * up


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.proj = Column([HEADS * SIZE, KEYS * SIZE, KEYS * SIZE]), Row(WIDTH)
        self.up, self.gated, self.down = Column([2 * WIDTH, 2 * WIDTH]), Gated(), Row(2 * WIDTH)

    def attention(self, x):
        heads = self.qkv(x).unflatten(-1, (-1, SIZE)).transpose(1, 2)
        query, key, value = heads.split([HEADS // RANKS, KEYS // RANKS, KEYS // RANKS], 1)
        if MISTAKE == "scale" and RANK == 1:
            query = 1.02 * query
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.proj(attended.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.down(self.gated(self.up(self.norms[1](x))))


model = nn.Sequential(nn.Embedding(50, WIDTH), Layer(), Layer(), nn.Linear(WIDTH, 50))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    tokens = torch.randint(50, (4, 8))
    step(optimizer, nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()))
