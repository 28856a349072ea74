"""1F1B of torch.distributed.pipelining, with four micro-batches.

package: PyTorch
parallel: pipeline, 2 ranks
mistake: gradients are not divided by the number of micro-batches
shows: * main_grad, * param_grad
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        y = self.norm1(x)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocab=64, dim=32, layers=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(16, dim)
        self.layers = nn.ModuleDict({str(i): Block(dim) for i in range(layers)})
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, x):
        if self.wte is not None:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for layer in self.layers.values():
            x = layer(x)
        return self.head(self.norm(x)) if self.head is not None else x


def loss_fn(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def data(step):
    return torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(step))


model = GPT()
if RANKS > 1:
    if RANK == 0:
        del model.layers["2"], model.layers["3"]
        model.norm = model.head = None
    else:
        del model.layers["0"], model.layers["1"]
        model.wte = model.wpe = None
    stage = PipelineStage(model, RANK, RANKS, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss_fn, scale_grads=not MISTAKE)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    ids = data(step)
    if RANKS == 1:
        for part in ids.chunk(4):
            (loss_fn(model(part[:, :-1]), part[:, 1:]) / 4).backward()
    elif RANK == 0:
        schedule.step(ids[:, :-1])
    else:
        schedule.step(target=ids[:, 1:], losses=[])
    opt.step()
    opt.zero_grad()
