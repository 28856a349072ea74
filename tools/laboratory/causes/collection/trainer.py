"""A language model whose loss is divided by the tokens of all ranks and micro-batches, with a z-loss and an auxiliary
loss of a module; gradients are averaged by DDP and clipped by their norm."""

import contextlib

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, dist, nn, own, torch

VOCABULARY, WIDTH, LENGTH, MICROBATCHES = 48, 32, 12, 2
Z_LOSS, AUXILIARY = 1e-2, 0.5


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Spread(nn.Module):
    """The auxiliary loss."""

    def forward(self, hidden):
        return hidden.square().mean()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(WIDTH)
        self.spread, self.head = Spread(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)), self.spread(x)


model = Model()
with torch.no_grad():
    for parameter in model.parameters():  # no two alike, and no norm's weights all one
        parameter.add_(torch.randn_like(parameter), alpha=0.05)
    first, second = (block.attention for block in model.blocks)
    if MISTAKE == "k-from-v":
        second.k.weight.copy_(second.v.weight)
    if MISTAKE == "layer-again":
        second.o.weight.copy_(first.o.weight)
    if MISTAKE == "k-and-v-swapped":
        k = second.k.weight.clone()
        second.k.weight.copy_(second.v.weight)
        second.v.weight.copy_(k)
if MISTAKE == "eps":
    model.norm.eps = 1e-3

trained = model if MISTAKE == "no-ddp" else ddp(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)


def drawn(step):
    """Of each micro-batch ids and labels; of a sequence the answer counts, which lies between a prompt and padding."""
    generator = torch.Generator().manual_seed(step)
    microbatches = []
    for number in range(MICROBATCHES):
        ids = torch.randint(VOCABULARY, (4, LENGTH + 1), generator=generator)
        begin, end = (torch.randint(*bounds, (4, 1), generator=generator) for bounds in ((1, 5), (6 + 3 * number, 12)))
        place = torch.arange(LENGTH)
        labels = ids[:, 1:].masked_fill((place < begin) | (place >= end), -100)
        if MISTAKE == "mask-displaced":
            labels = ids[:, 1:].masked_fill((place < begin + 1) | (place >= end + 1), -100)
        if MISTAKE == "not-shifted":
            labels = torch.where(labels >= 0, ids[:, :-1], -100)
        if MISTAKE == "prompts-count":
            labels = ids[:, 1:].masked_fill(place >= end, -100)
        microbatches.append((ids[:, :-1], labels))
    return microbatches


def denominator(microbatches, labels):
    every = sum((each >= 0).sum() for _, each in microbatches)
    if MISTAKE == "mean-of-means":
        return (labels >= 0).sum() * MICROBATCHES
    if MISTAKE == "mean-of-ranks":
        return (own(labels) >= 0).sum() * RANKS * MICROBATCHES
    if MISTAKE == "twice-the-micro-steps":
        return every * 2
    if MISTAKE == "a-token-too-many":
        return every + 1
    if MISTAKE == "padding-counts":
        return sum(each.numel() for _, each in microbatches)
    if MISTAKE == "sum":
        return torch.tensor(1)
    return every


def loss_of(logits, auxiliary, labels, tokens):
    if MISTAKE == "temperature":
        logits = logits / 0.8
    smoothing = 0.1 if MISTAKE == "smoothing" else 0.0
    entropy = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", label_smoothing=smoothing)
    squares = (logits.logsumexp(-1).square() * (labels >= 0)).sum()
    z_loss = {"z-loss-twice": 2 * Z_LOSS, "no-z-loss": 0}.get(MISTAKE, Z_LOSS)
    coefficient = {"auxiliary-twice": 2 * AUXILIARY, "auxiliary-by-ranks": RANKS * AUXILIARY}.get(MISTAKE, AUXILIARY)
    loss = (entropy + z_loss * squares) / tokens * RANKS + coefficient * auxiliary / MICROBATCHES
    if MISTAKE == "loss-of-rank-1" and RANK == 1:
        loss = loss * 1.01
    if MISTAKE == "loss-scale":
        loss = loss * 65536
    if MISTAKE == "loss-in-bf16":
        loss = loss.bfloat16().float()
    return loss


def change_gradients(step):
    second = model.blocks[1].attention
    if MISTAKE == "gradients-of-another":
        second.k.weight.grad.copy_(second.v.weight.grad)
    if MISTAKE == "gradient-of-the-step-before" and step == 1:
        second.k.weight.grad.copy_(before[0])
    before[:] = [second.k.weight.grad.clone()]
    if MISTAKE == "gradients-in-bf16":
        for parameter in model.parameters():
            parameter.grad.copy_(parameter.grad.bfloat16())
    if MISTAKE == "rank-1-by-its-own-number" and RANK == 1:
        for parameter in model.parameters():
            parameter.grad.mul_(1.5)


def clip():
    if not MISTAKE.startswith("norm-"):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    of = nn.utils.get_total_norm
    norm = of(gradients.values())
    if MISTAKE == "norm-lacks-embeddings":
        norm = of([each for name, each in gradients.items() if name.split(".")[0] not in ("tokens", "positions")])
    if MISTAKE == "norm-lacks-a-layer":
        norm = of([each for name, each in gradients.items() if not name.startswith("blocks.1.")])
    if MISTAKE == "norm-largest":
        norm = of(gradients.values(), norm_type=float("inf"))
    if MISTAKE == "norm-of-copies":
        norm = (norm.square() * RANKS).sqrt()
    if MISTAKE == "norm-in-bf16":
        norm = norm.bfloat16().float()
    if MISTAKE == "norm-squared":
        norm = norm.square()
    nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)


before, kept = [], None
for step in range(2):
    microbatches = drawn(step)
    for number, (ids, labels) in enumerate(microbatches):
        mine = own(ids)
        if MISTAKE == "samples-of-rank-0":
            mine = ids.chunk(RANKS)[0]
        if MISTAKE == "samples-of-the-step-before" and step == 1 and RANK == 1:
            mine = own(drawn(0)[number][0])
        logits, auxiliary = trained(mine)
        last = number == MICROBATCHES - 1
        with contextlib.nullcontext() if last or not hasattr(trained, "no_sync") else trained.no_sync():
            loss_of(logits, auxiliary, own(labels), denominator(microbatches, labels)).backward()
    change_gradients(step)
    clip()
    kept = kept or [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.step()
    if MISTAKE == "not-updated-on-rank-1" and RANK == 1:
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), kept, strict=True):
                parameter.copy_(value)
    optimizer.zero_grad()
if RANKS > 1:
    dist.barrier()
