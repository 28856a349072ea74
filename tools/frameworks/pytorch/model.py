"""A small decoder-only transformer in plain PyTorch: RMSNorm, rotary positions, grouped queries, SwiGLU.

Layers are held by number, so that a pipeline stage, which drops the others, keeps the names of its own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, SEQUENCE = 96, 32, 64, 4, 4, 2, 16


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head_size = HIDDEN // HEADS
        self.wq = nn.Linear(HIDDEN, HEADS * self.head_size, bias=False)
        self.wk = nn.Linear(HIDDEN, KV_HEADS * self.head_size, bias=False)
        self.wv = nn.Linear(HIDDEN, KV_HEADS * self.head_size, bias=False)
        self.wo = nn.Linear(HEADS * self.head_size, HIDDEN, bias=False)

    def forward(self, hidden: Tensor, angles: Tensor) -> Tensor:
        """hidden [b, s, h], angles [s, head_size / 2] -> [b, s, h]. Under tensor parallelism the linears return whole
        heads of this rank."""
        query, key, value = (
            linear(hidden).unflatten(-1, (-1, self.head_size)).transpose(1, 2) for linear in (self.wq, self.wk, self.wv)
        )  # [b, heads, s, head_size]
        query, key = rotated(query, angles), rotated(key, angles)
        shared_by = query.shape[1] // key.shape[1]
        key, value = (heads.repeat_interleave(shared_by, dim=1) for heads in (key, value))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.wo(attended.transpose(1, 2).flatten(start_dim=2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
        self.w2 = nn.Linear(FEED_FORWARD, HIDDEN, bias=False)
        self.w3 = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(hidden)) * self.w3(hidden))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.attention = Attention()
        self.ffn_norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.feed_forward = FeedForward()

    def forward(self, hidden: Tensor, angles: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), angles)
        return hidden + self.feed_forward(self.ffn_norm(hidden))


class Transformer(nn.Module):
    """Of a pipeline's stage `tok_embeddings`, or `norm` and `output`, may be None."""

    def __init__(self, reentrant: bool | None = None) -> None:
        """`reentrant`: of the activation checkpointing of each layer; None for none."""
        super().__init__()
        self.reentrant = reentrant
        self.tok_embeddings = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleDict({str(number): Block() for number in range(LAYERS)})
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.output = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        half = HIDDEN // HEADS // 2
        frequencies = 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("angles", torch.outer(torch.arange(SEQUENCE), frequencies), persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """tokens [b, s], or on a later stage hidden [b, s, h] -> logits [b, s, v], or on an earlier one hidden."""
        if self.tok_embeddings is not None:
            hidden = self.tok_embeddings(hidden)
        for layer in self.layers.values():
            if self.reentrant is None:
                hidden = layer(hidden, self.angles)
            else:
                hidden = checkpoint(layer, hidden, self.angles, use_reentrant=self.reentrant)
        return hidden if self.output is None else self.output(self.norm(hidden))


def rotated(heads: Tensor, angles: Tensor) -> Tensor:
    """Rotary position embedding of [b, heads, s, d] by [s, d / 2]."""
    first, second = heads.float().chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(heads.dtype)


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits [b, s, v], labels [b, s] -> the mean over all tokens."""
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
