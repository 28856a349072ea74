"""A Llama for one device, of plain PyTorch modules: RMSNorm, rotary positions, grouped queries, SwiGLU. This is the
program that the parallel one must equal; parallel.py parallelises these very modules.

Activations are [b, s, h]. Layers are held by number, so that a pipeline stage that drops the others keeps the names of
its own."""

import hashlib

import torch
import torch.nn.functional as F
from torch import nn


class Llama(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tok_embeddings = nn.Embedding(options.vocab, options.hidden)
        self.layers = nn.ModuleDict({str(number): TransformerBlock(options) for number in range(options.layers)})
        self.norm = nn.RMSNorm(options.hidden, eps=1e-5)
        self.output = nn.Linear(options.hidden, options.vocab, bias=False)

    def forward(self, hidden):
        """tokens [b, s], or on a later pipeline stage activations -> logits, or on an earlier one activations."""
        if self.tok_embeddings is not None:
            hidden = self.tok_embeddings(hidden)
        for layer in self.layers.values():
            hidden = layer(hidden)
        if self.output is not None:
            hidden = self.output(self.norm(hidden))
        return hidden


class TransformerBlock(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.attention_norm = nn.RMSNorm(options.hidden, eps=1e-5)
        self.attention = Attention(options)
        self.ffn_norm = nn.RMSNorm(options.hidden, eps=1e-5)
        self.feed_forward = FeedForward(options)

    def forward(self, hidden):
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.feed_forward(self.ffn_norm(hidden))


class Attention(nn.Module):
    def __init__(self, options):
        super().__init__()
        head_size = options.hidden // options.heads
        self.wq = nn.Linear(options.hidden, options.heads * head_size, bias=False)
        self.wk = nn.Linear(options.hidden, options.kv_heads * head_size, bias=False)
        self.wv = nn.Linear(options.hidden, options.kv_heads * head_size, bias=False)
        self.core = CoreAttention(head_size)
        self.wo = nn.Linear(options.heads * head_size, options.hidden, bias=False)

    def forward(self, hidden):
        return self.wo(self.core(self.wq(hidden), self.wk(hidden), self.wv(hidden)))


class CoreAttention(nn.Module):
    def __init__(self, head_size):
        super().__init__()
        self.head_size = head_size

    def forward(self, query, key, value):
        """Any number of whole heads: [b, s, heads * d], twice [b, s, kv_heads * d] -> [b, s, heads * d]."""
        query, key, value = (
            x.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for x in (query, key, value)
        )  # [b, heads, s, d]
        query, key = rotated(query), rotated(key)
        shared_by = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(shared_by, dim=1) for x in (key, value))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return attended.transpose(1, 2).flatten(start_dim=2)


class FeedForward(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.w1 = nn.Linear(options.hidden, options.ffn, bias=False)
        self.w2 = nn.Linear(options.ffn, options.hidden, bias=False)
        self.w3 = nn.Linear(options.hidden, options.ffn, bias=False)

    def forward(self, hidden):
        return self.w2(F.silu(self.w1(hidden)) * self.w3(hidden))


class CrossEntropy(nn.Module):
    """The mean over a micro-batch's tokens, divided by the micro-batches of the step: gradients add up."""

    def __init__(self, micro_batches):
        super().__init__()
        self.micro_batches = micro_batches

    def forward(self, logits, labels):
        """logits [b, s, v], labels [b, s] -> fp32 scalar."""
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten()) / self.micro_batches


def rotated(heads):
    """Rotary position embedding of [b, heads, s, d], d even."""
    seq, size = heads.shape[-2:]
    frequencies = 10000.0 ** (-torch.arange(0, size, 2, device=heads.device) / size)
    angles = torch.outer(torch.arange(seq, device=heads.device), frequencies)  # [s, d / 2]
    cos, sin = angles.cos(), angles.sin()
    even, odd = heads.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(start_dim=-2).to(heads.dtype)


def build_model(options):
    """The whole model on this process, in the compute dtype, initialised by name: every layout starts from the same
    numbers. Norm weights are not all one, which would hide mistakes."""
    model = Llama(options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            digest = hashlib.sha256(f"{options.seed} {name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if name.endswith("norm.weight") else 0.05 * noise)
    return model.to(options.torch_dtype)
