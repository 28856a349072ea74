"""The GPT's stage on one rank: the plain model's wiring around tensor parallel layers."""

import torch
from torch import nn

from tinygpt import model
from tinygpt.parallel.experts import MoE, global_expert, is_expert
from tinygpt.parallel.sequence import scatter_to_sequence_region
from tinygpt.parallel.tensor import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelCrossEntropy,
    VocabParallelEmbedding,
    is_sharded,
)


class GPTStage(nn.Module):
    """A run of consecutive layers; the first stage has the embedding, the last the head. Layers are numbered
    from 0 on each stage."""

    def __init__(self, options, mesh):
        super().__init__()
        self.is_first, self.is_last = mesh.is_first_stage, mesh.is_last_stage
        if self.is_first:
            self.embedding = Embedding(options, mesh.tp)
        self.decoder = Decoder(options, mesh)
        if self.is_last:
            self.output_layer = ColumnParallelLinear(options.hidden, options.vocab, mesh.tp, options.sp, bias=False)
            self.cross_entropy = VocabParallelCrossEntropy(mesh.tp)

    def forward(self, tokens, labels, hidden):
        """tokens, labels [b, s]; `hidden` is the previous stage's output, None on the first. The hidden state for
        the next stage ([s, b, h], or [s/tp, b, h] under sequence parallelism), on the last stage the loss of each
        token, fp32 [b, s]."""
        hidden = self.decoder(self.embedding(tokens) if self.is_first else hidden)
        return self.cross_entropy(self.output_layer(hidden), labels) if self.is_last else hidden


class Embedding(model.Embedding):
    def __init__(self, options, axis):
        nn.Module.__init__(self)
        self.axis = axis
        self.sequence_parallel = options.sp
        self.word_embeddings = VocabParallelEmbedding(options.vocab, options.hidden, axis, options.bug)
        self.position_embeddings = nn.Embedding(options.seq, options.hidden)

    def forward(self, tokens):
        hidden = super().forward(tokens)
        return scatter_to_sequence_region(hidden, self.axis) if self.sequence_parallel else hidden


class Decoder(model.Decoder):
    def __init__(self, options, mesh):
        nn.Module.__init__(self)
        self.recompute = options.recompute
        layers = options.layers // mesh.pp.size
        self.layers = nn.ModuleList(TransformerLayer(options, mesh) for _ in range(layers))
        self.is_last = mesh.is_last_stage
        if self.is_last:
            self.final_layernorm = layer_norm(options)

    def forward(self, hidden):
        return super().forward(hidden) if self.is_last else self.run_layers(hidden)


class TransformerLayer(model.TransformerLayer):
    def __init__(self, options, mesh):
        nn.Module.__init__(self)
        self.input_layernorm = layer_norm(options)
        self.self_attention = SelfAttention(options, mesh.tp)
        self.pre_mlp_layernorm = layer_norm(options)
        self.mlp = MoE(options, mesh) if options.experts else MLP(options, mesh.tp)


class SelfAttention(model.SelfAttention):
    """On tp-th part of the heads: `linear_qkv` is stored head by head, so its shards are whole heads."""

    def __init__(self, options, axis):
        nn.Module.__init__(self)
        self.head_size = options.hidden // options.heads
        self.linear_qkv = ColumnParallelLinear(options.hidden, 3 * options.hidden, axis, options.sp)
        self.core_attention = model.CoreAttention()
        self.linear_proj = RowParallelLinear(options.hidden, options.hidden, axis, options.sp)


class MLP(model.MLP):
    def __init__(self, options, axis):
        nn.Module.__init__(self)
        self.linear_fc1 = ColumnParallelLinear(options.hidden, 4 * options.hidden, axis, options.sp)
        self.activation = nn.GELU()
        self.linear_fc2 = RowParallelLinear(4 * options.hidden, options.hidden, axis, options.sp)


def layer_norm(options):
    norm = nn.LayerNorm(options.hidden)
    for parameter in norm.parameters():
        parameter.sequence_parallel = options.sp
    return norm


def canonical_name(name, options, mesh):
    """The name of this stage's parameter `name` in the whole model: with global numbers of layer and expert."""
    if not name.startswith("decoder.layers."):
        return name
    decoder, layers, layer, rest = name.split(".", 3)
    first = mesh.pp.rank * (options.layers // mesh.pp.size)
    return f"{decoder}.{layers}.{first + int(layer)}.{global_expert(rest, options, mesh)}"


def build_model(options, mesh):
    """This rank's stage, with its slices of the plain model's initial values, in the compute dtype."""
    stage = GPTStage(options, mesh)
    with torch.no_grad():
        for name, parameter in stage.named_parameters():
            axis = mesh.experts.etp if is_expert(parameter) else mesh.tp
            _initialise(parameter, canonical_name(name, options, mesh), options, axis)
    return stage.to(options.torch_dtype)


def _initialise(parameter, name, options, axis):
    shape = list(parameter.shape)
    if not is_sharded(parameter):
        parameter.copy_(model.initial_value(name, shape, options.seed))
        return
    shape[parameter.partition_dim] *= axis.size
    whole = model.initial_value(name, shape, options.seed)
    parameter.copy_(whole.chunk(axis.size, dim=parameter.partition_dim)[axis.rank])
