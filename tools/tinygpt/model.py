"""A GPT or a Llama for one device, of plain PyTorch modules. This is the program that the parallel one must equal.

Activations are [s, b, h] between the embedding and the logits. Module names are Megatron-core's. A GPT's
`linear_qkv` holds query, key and value of head 0, then of head 1, and so on."""

import functools
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tinygpt import fp8, llama
from tinygpt.attention import CoreAttention, places_in_row
from tinygpt.moe import MoE


class GPT(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embedding = Embedding(options)
        self.decoder = Decoder(options)
        self.output_layer = nn.Linear(options.hidden, options.padded_vocab, bias=False)
        if options.tied:
            self.output_layer.weight = self.embedding.word_embeddings.weight
        self.cross_entropy = CrossEntropy(options.vocab)

    def forward(self, tokens, labels, cu_seqlens=None):
        """tokens, labels [b, s] -> the loss of each token, fp32 [b, s]. A packed row has b = 1; its documents lie
        between `cu_seqlens`, int32 [documents + 1]."""
        places = places_in_row(tokens.shape[1], cu_seqlens)
        hidden = self.decoder(self.embedding(tokens, places), places)
        return self.cross_entropy(self.output_layer(hidden), labels)


class Embedding(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.word_embeddings = nn.Embedding(options.padded_vocab, options.hidden)
        self.position_embeddings = position_embeddings(options)

    def forward(self, tokens, places):
        """[b, s] -> [s, b, h]."""
        embedded = self.word_embeddings(tokens)
        if self.position_embeddings is not None:
            embedded = embedded + self.position_embeddings(places.positions.expand_as(tokens))
        return embedded.transpose(0, 1).contiguous()


class Decoder(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options
        self.layers = nn.ModuleList(TransformerLayer(options) for _ in range(options.layers))
        self.final_layernorm = norm(options)

    def forward(self, hidden, places):
        return self.final_layernorm(self.run_layers(hidden, places))

    def run_layers(self, hidden, places):
        recompute, count = self.options.recompute, self.options.recompute_layers
        if recompute == "none":
            return self._run(self.layers, hidden, places)
        for first in range(0, len(self.layers), count):
            group = functools.partial(self._run, self.layers[first : first + count])
            hidden = checkpoint(group, hidden, places, use_reentrant=recompute == "reentrant")
        return hidden

    def _run(self, layers, hidden, places):
        result = hidden
        for layer in layers:
            result = layer(hidden if self.options.bug == "stale-recompute-input" else result, places)
        return result


class TransformerLayer(nn.Module):
    def __init__(self, options):
        super().__init__()
        is_llama = options.arch == "llama"
        self.input_layernorm = norm(options)
        self.self_attention = llama.SelfAttention(options) if is_llama else SelfAttention(options)
        self.pre_mlp_layernorm = norm(options)
        self.mlp = MoE(options) if options.experts else llama.MLP(options) if is_llama else MLP(options)

    def forward(self, hidden, places):
        hidden = hidden + self.self_attention(self.input_layernorm(hidden), places)
        return hidden + self.mlp(self.pre_mlp_layernorm(hidden))


class SelfAttention(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.head_size = options.hidden // options.heads
        self.linear_qkv = nn.Linear(options.hidden, 3 * options.hidden)
        self.core_attention = CoreAttention(unfused=options.unfused_attention)
        self.linear_proj = nn.Linear(options.hidden, options.hidden)

    def forward(self, hidden, places):
        heads = self.linear_qkv(hidden).unflatten(-1, (-1, 3 * self.head_size))  # [s, b, heads, 3 d]
        query, key, value = heads.chunk(3, dim=-1)
        return self.linear_proj(self.core_attention(query, key, value, places))


class MLP(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.linear_fc1 = nn.Linear(options.hidden, 4 * options.hidden)
        self.activation = nn.GELU()
        self.linear_fc2 = nn.Linear(4 * options.hidden, options.hidden)

    def forward(self, hidden):
        return self.linear_fc2(self.activation(self.linear_fc1(hidden)))


class CrossEntropy(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.vocab = vocab

    def forward(self, logits, labels):
        """logits [s, b, v], labels [b, s] -> fp32 [b, s]."""
        logits = mask_padding(logits.float(), self.vocab)
        return F.cross_entropy(logits.permute(1, 2, 0), labels, reduction="none")


def mask_padding(logits, vocab, first_id=0):
    """`logits` [..., n] of the ids from `first_id` on, with -inf for those that are no token, from `vocab` on."""
    padding = torch.arange(first_id, first_id + logits.shape[-1]) >= vocab
    return logits.masked_fill(padding, -math.inf) if padding.any() else logits


def norm(options):
    return llama.rms_norm(options) if options.arch == "llama" else nn.LayerNorm(options.hidden)


def position_embeddings(options):
    """Learned ones, or None where attention rotates by position."""
    return None if options.arch == "llama" else nn.Embedding(options.seq, options.hidden)


def initial_value(name, shape, options):
    """The initial value of the parameter `name`, fp32: a function of its canonical name and the seed alone, so
    that every layout starts from the same numbers. Nothing starts at a value that hides mistakes: biases are
    not zero, layer norm weights not all one. The rows that pad the vocabulary are drawn apart from the others."""
    if name in ("embedding.word_embeddings.weight", "output_layer.weight") and shape[0] > options.vocab:
        tokens, padding = [options.vocab, *shape[1:]], [shape[0] - options.vocab, *shape[1:]]
        return torch.cat((_drawn(name, tokens, options.seed), _drawn(f"{name} padding", padding, options.seed)))
    value = _drawn(name, shape, options.seed)
    if options.fp8 and name == "embedding.position_embeddings.weight":
        # One large feature at the first position, as trained models have it (Sun et al., "Massive activations in large
        # language models"). Without it the parts of a tensor have nearly the same largest magnitude.
        value[0, 0] = 0.5
    return value


def _drawn(name, shape, seed):
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    noise = torch.randn(shape, generator=generator)
    return 1 + 0.1 * noise if name.endswith("layernorm.weight") else 0.02 * noise


def build_model(options):
    """The whole GPT on this process, initialised, in the compute dtype."""
    model = GPT(options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial_value(name, parameter.shape, options))
    model.to(options.torch_dtype)
    if options.fp8:
        fp8.convert(model)
    return model
