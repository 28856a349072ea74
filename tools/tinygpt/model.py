"""A GPT for one device, of plain PyTorch modules. This is the program that the parallel one must equal.

Activations are [s, b, h] between the embedding and the logits. Module names are Megatron-core's. `linear_qkv`
holds query, key and value of head 0, then of head 1, and so on."""

import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tinygpt.moe import MoE


class GPT(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embedding = Embedding(options)
        self.decoder = Decoder(options)
        self.output_layer = nn.Linear(options.hidden, options.vocab, bias=False)
        self.cross_entropy = CrossEntropy()

    def forward(self, tokens, labels):
        """tokens, labels [b, s] -> the loss of each token, fp32 [b, s]."""
        hidden = self.decoder(self.embedding(tokens))
        return self.cross_entropy(self.output_layer(hidden), labels)


class Embedding(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.word_embeddings = nn.Embedding(options.vocab, options.hidden)
        self.position_embeddings = nn.Embedding(options.seq, options.hidden)

    def forward(self, tokens):
        """[b, s] -> [s, b, h]."""
        positions = torch.arange(tokens.shape[1]).expand_as(tokens)
        embedded = self.word_embeddings(tokens) + self.position_embeddings(positions)
        return embedded.transpose(0, 1).contiguous()


class Decoder(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.recompute = options.recompute
        self.layers = nn.ModuleList(TransformerLayer(options) for _ in range(options.layers))
        self.final_layernorm = nn.LayerNorm(options.hidden)

    def forward(self, hidden):
        return self.final_layernorm(self.run_layers(hidden))

    def run_layers(self, hidden):
        for layer in self.layers:
            if self.recompute == "none":
                hidden = layer(hidden)
            else:
                hidden = checkpoint(layer, hidden, use_reentrant=self.recompute == "reentrant")
        return hidden


class TransformerLayer(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(options.hidden)
        self.self_attention = SelfAttention(options)
        self.pre_mlp_layernorm = nn.LayerNorm(options.hidden)
        self.mlp = MoE(options) if options.experts else MLP(options)

    def forward(self, hidden):
        hidden = hidden + self.self_attention(self.input_layernorm(hidden))
        return hidden + self.mlp(self.pre_mlp_layernorm(hidden))


class SelfAttention(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.head_size = options.hidden // options.heads
        self.linear_qkv = nn.Linear(options.hidden, 3 * options.hidden)
        self.core_attention = CoreAttention()
        self.linear_proj = nn.Linear(options.hidden, options.hidden)

    def forward(self, hidden):
        heads = self.linear_qkv(hidden).unflatten(-1, (-1, 3 * self.head_size))  # [s, b, heads, 3 d]
        query, key, value = heads.chunk(3, dim=-1)
        return self.linear_proj(self.core_attention(query, key, value))


class CoreAttention(nn.Module):
    def forward(self, query, key, value):
        """Causal scaled dot products: three times [s, b, heads, d] -> [s, b, heads * d]."""
        query, key, value = (x.permute(1, 2, 0, 3) for x in (query, key, value))  # [b, heads, s, d]
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(diagonal=1)
        # In bf16 the softmax would lose the small probabilities.
        probabilities = scores.float().masked_fill(future, -math.inf).softmax(dim=-1).to(value.dtype)
        return (probabilities @ value).permute(2, 0, 1, 3).flatten(start_dim=2)


class MLP(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.linear_fc1 = nn.Linear(options.hidden, 4 * options.hidden)
        self.activation = nn.GELU()
        self.linear_fc2 = nn.Linear(4 * options.hidden, options.hidden)

    def forward(self, hidden):
        return self.linear_fc2(self.activation(self.linear_fc1(hidden)))


class CrossEntropy(nn.Module):
    def forward(self, logits, labels):
        """logits [s, b, v], labels [b, s] -> fp32 [b, s]."""
        return F.cross_entropy(logits.float().permute(1, 2, 0), labels, reduction="none")


def initial_value(name, shape, seed):
    """The initial value of the parameter `name`, fp32: a function of its canonical name and the seed alone, so
    that every layout starts from the same numbers. Nothing starts at a value that hides mistakes: biases are
    not zero, layer norm weights not all one."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    noise = torch.randn(shape, generator=generator)
    return 1 + 0.1 * noise if name.endswith("layernorm.weight") else 0.02 * noise


def build_model(options):
    """The whole GPT on this process, initialised, in the compute dtype."""
    model = GPT(options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial_value(name, parameter.shape, options.seed))
    return model.to(options.torch_dtype)
