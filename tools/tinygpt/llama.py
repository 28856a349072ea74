"""What a Llama has in place of a GPT's: rotary position embeddings, grouped-query attention, SwiGLU, RMSNorm, and no
biases. `linear_qkv` holds all query heads, then all key heads, then all value heads; `linear_fc1` all of the gate,
then all of the up projection."""

import torch
import torch.nn.functional as F
from torch import nn

from tinygpt.attention import CoreAttention


def rms_norm(options):
    # Without a number, epsilon would depend on the dtype.
    return nn.RMSNorm(options.hidden, eps=1e-5)


class SelfAttention(nn.Module):
    def __init__(self, options):
        super().__init__()
        heads, kv_heads = options.heads, options.key_value_heads
        self.head_size = options.hidden // heads
        self.widths = [count * self.head_size for count in (heads, kv_heads, kv_heads)]
        self.linear_qkv = nn.Linear(options.hidden, sum(self.widths), bias=False)
        kv_of_head = torch.arange(heads) * kv_heads // heads
        self.core_attention = CoreAttention(kv_of_head, options.unfused_attention)
        self.linear_proj = nn.Linear(options.hidden, options.hidden, bias=False)

    def forward(self, hidden, places):
        stacked = self.linear_qkv(hidden).split(self.widths, dim=-1)
        query, key, value = (x.unflatten(-1, (-1, self.head_size)) for x in stacked)  # [s, b, heads, d]
        query, key = (rotate(x, places.positions) for x in (query, key))
        return self.linear_proj(self.core_attention(query, key, value, places))


def rotate(heads, positions):
    """[s, b, heads, d]: elements i and i + d/2 turned by the angle position / 10000 ** (2 i / d) (Su et al.,
    "RoFormer", in the halved order of Llama)."""
    half = heads.shape[-1] // 2
    angles = positions.unsqueeze(1) * 10000.0 ** (-torch.arange(half) / half)  # [s, d/2]
    cos, sin = (x[:, None, None] for x in (angles.cos(), angles.sin()))
    first, second = heads.float().split(half, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(heads.dtype)


class SwiGLU(nn.Module):
    def forward(self, stacked):
        """[gate; up] along the last dimension -> silu(gate) * up."""
        gate, up = stacked.chunk(2, dim=-1)
        return F.silu(gate) * up


class MLP(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.linear_fc1 = nn.Linear(options.hidden, 2 * 4 * options.hidden, bias=False)
        self.activation = SwiGLU()
        self.linear_fc2 = nn.Linear(4 * options.hidden, options.hidden, bias=False)

    def forward(self, hidden):
        return self.linear_fc2(self.activation(self.linear_fc1(hidden)))
