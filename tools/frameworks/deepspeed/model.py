"""A small language model in plain PyTorch: embedding, blocks of attention and a gated MLP, head."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, HIDDEN, HEADS, LAYERS, SEQUENCE = 61, 32, 4, 4, 16


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention over [batch, sequence, heads, head_dim]."""
    by_head = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return functional.scaled_dot_product_attention(*by_head, is_causal=True).transpose(1, 2)


class Attend(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch_dim: int) -> torch.Tensor:
        return attend(query, key, value)


class SelfAttention(nn.Module):
    def __init__(self, core: nn.Module):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.core = core

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        parts = [linear(hidden).unflatten(-1, (HEADS, -1)) for linear in (self.query, self.key, self.value)]
        return self.out(self.core(*parts, 0).flatten(2))


class GatedMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN)
        self.down = nn.Linear(3 * HIDDEN, HIDDEN)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


class Block(nn.Module):
    def __init__(self, core: nn.Module):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.attention, self.mlp = SelfAttention(core), GatedMlp()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.mlp(self.mlp_norm(hidden))


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(SEQUENCE, HIDDEN)

    def forward(self, ids: torch.Tensor, first_position: int = 0) -> torch.Tensor:
        positions = torch.arange(first_position, first_position + ids.shape[1], device=ids.device)
        return self.tokens(ids) + self.positions(positions)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN)
        self.logits = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.logits(self.norm(hidden))


class Model(nn.Module):
    def __init__(self, new_core: Callable[[], nn.Module] = Attend):
        super().__init__()
        self.embedding = Embedding()
        self.layers = nn.ModuleList(Block(new_core()) for _ in range(LAYERS))
        self.head = Head()

    def forward(self, ids: torch.Tensor, first_position: int = 0) -> torch.Tensor:
        hidden = self.embedding(ids, first_position)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The micro-batches of a step: ids and labels, the same for every program."""
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, VOCABULARY, (count, 2, SEQUENCE + 1), generator=generator)
    return [(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in tokens]


def train_without_deepspeed(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, micro_batches: int, clip: float
) -> None:
    """One process runs all micro-batches. `clip` is the largest gradient norm; 0 does not clip."""
    for _ in range(steps):
        for ids, labels in batches(micro_batches):
            loss = loss_of(model(ids), labels)
            (loss / micro_batches).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item()}")
