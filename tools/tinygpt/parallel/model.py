"""The GPT's stage on one rank: the plain model's wiring around tensor parallel layers."""

import torch
from torch import nn

from tinygpt import model
from tinygpt.parallel import fp8, llama
from tinygpt.parallel.buffers import gather_buffer
from tinygpt.parallel.context import core_attention, places_of_rank
from tinygpt.parallel.experts import MoE, global_expert, is_expert
from tinygpt.parallel.sequence import scatter_to_sequence_region
from tinygpt.parallel.tensor import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelCrossEntropy,
    VocabParallelEmbedding,
    is_sharded,
)
from tinygpt.parallel.tied import is_copy, tie
from tinygpt.partition import part_of


class GPTStage(nn.Module):
    """`part` of the model: a run of consecutive layers; the first part has the embedding, the last the head. Layers
    are numbered from 0 in each."""

    def __init__(self, options, mesh, part):
        super().__init__()
        self.options, self.context_axis = options, mesh.cp
        self.is_first, self.is_last = part.is_first, part.is_last
        if self.is_first:
            self.embedding = Embedding(options, mesh.tp)
        self.decoder = Decoder(options, mesh, part)
        if self.is_last:
            vocab = options.padded_vocab
            self.output_layer = ColumnParallelLinear(options.hidden, vocab, mesh.tp, options.sp, bias=False)
            self.cross_entropy = VocabParallelCrossEntropy(options.vocab, mesh.tp)
            if options.tied:
                tie(self)

    def forward(self, tokens, labels, hidden, cu_seqlens=None, cu_seqlens_padded=None):
        """tokens, labels [b, s], this context parallel rank's; `hidden` is the previous part's output, None in the
        first. The hidden state for the next part ([s, b, h], or [s/tp, b, h] under sequence parallelism), in the last
        part the loss of each token, fp32 [b, s]. Of a packed row, over all context parallel ranks, documents lie
        between `cu_seqlens` without and `cu_seqlens_padded` with their padding, int32 [documents + 1]."""
        places = places_of_rank(tokens.shape[1], cu_seqlens, cu_seqlens_padded, self.context_axis, self.options)
        hidden = self.decoder(self.embedding(tokens, places) if self.is_first else hidden, places)
        return self.cross_entropy(self.output_layer(hidden), labels) if self.is_last else hidden


class Embedding(model.Embedding):
    def __init__(self, options, axis):
        nn.Module.__init__(self)
        self.axis = axis
        self.sequence_parallel = options.sp
        self.word_embeddings = VocabParallelEmbedding(options.padded_vocab, options.hidden, axis, options.bug)
        self.position_embeddings = model.position_embeddings(options)

    def forward(self, tokens, places):
        hidden = super().forward(tokens, places)
        return scatter_to_sequence_region(hidden, self.axis) if self.sequence_parallel else hidden


class Decoder(model.Decoder):
    def __init__(self, options, mesh, part):
        nn.Module.__init__(self)
        self.options = options
        self.layers = nn.ModuleList(TransformerLayer(options, mesh) for _ in part.layers)
        self.is_last = part.is_last
        if self.is_last:
            self.final_layernorm = layer_norm(options, options.sp and options.bug != "norm-gradient")

    def forward(self, hidden, places):
        return super().forward(hidden, places) if self.is_last else self.run_layers(hidden, places)


class TransformerLayer(model.TransformerLayer):
    def __init__(self, options, mesh):
        nn.Module.__init__(self)
        is_llama = options.arch == "llama"
        self.input_layernorm = layer_norm(options, options.sp)
        self.self_attention = (llama.SelfAttention if is_llama else SelfAttention)(options, mesh)
        self.pre_mlp_layernorm = layer_norm(options, options.sp)
        self.mlp = MoE(options, mesh) if options.experts else (llama.MLP if is_llama else MLP)(options, mesh.tp)


class SelfAttention(model.SelfAttention):
    """On tp-th part of the heads: `linear_qkv` is stored head by head, so its shards are whole heads."""

    def __init__(self, options, mesh):
        nn.Module.__init__(self)
        self.head_size = options.hidden // options.heads
        self.linear_qkv = ColumnParallelLinear(
            options.hidden, 3 * options.hidden, mesh.tp, options.sp, buffer=gather_buffer(options, "linear_qkv")
        )
        self.core_attention = core_attention(options, mesh.cp)
        self.linear_proj = RowParallelLinear(options.hidden, options.hidden, mesh.tp, options.sp)


class MLP(model.MLP):
    def __init__(self, options, axis):
        nn.Module.__init__(self)
        self.linear_fc1 = ColumnParallelLinear(
            options.hidden, 4 * options.hidden, axis, options.sp, buffer=gather_buffer(options, "linear_fc1")
        )
        self.activation = nn.GELU()
        self.linear_fc2 = RowParallelLinear(4 * options.hidden, options.hidden, axis, options.sp)


def layer_norm(options, sequence_parallel):
    norm = model.norm(options)
    for parameter in norm.parameters():
        parameter.sequence_parallel = sequence_parallel
    return norm


def canonical_name(name, parameter, part, options, mesh):
    """The name in the whole model of what `part` calls `name`: with global numbers of layer and expert."""
    if is_copy(parameter):
        return "embedding.word_embeddings.weight"
    if not name.startswith("decoder.layers."):
        return name
    decoder, layers, layer, rest = name.split(".", 3)
    return f"{decoder}.{layers}.{part.layers[int(layer)]}.{global_expert(rest, options, mesh)}"


def build_model(options, mesh):
    """This rank's GPTStage, with its slices of the plain model's initial values, in the compute dtype; with virtual
    pipeline stages a ModuleList of several, in model order."""
    chunks = [_build_chunk(options, mesh, part_of(options, mesh.pp.rank, chunk)) for chunk in range(options.vpp)]
    return nn.ModuleList(chunks) if len(chunks) > 1 else chunks[0]


def chunks_of(stage):
    """The GPTStages of what `build_model` returned, in model order."""
    return list(stage) if isinstance(stage, nn.ModuleList) else [stage]


def _build_chunk(options, mesh, part):
    chunk = GPTStage(options, mesh, part)
    with torch.no_grad():
        for name, parameter in chunk.named_parameters():
            axis = mesh.experts.etp if is_expert(parameter) else mesh.tp
            _initialise(parameter, canonical_name(name, parameter, part, options, mesh), options, axis)
    chunk.to(options.torch_dtype)
    if options.fp8:
        fp8.convert(chunk, mesh, options)
    return chunk


def _initialise(parameter, name, options, axis):
    shape = list(parameter.shape)
    if not is_sharded(parameter):
        parameter.copy_(model.initial_value(name, shape, options))
        return
    if hasattr(parameter, "rows"):
        shape[0] = parameter.whole_rows
        parameter.copy_(model.initial_value(name, shape, options)[parameter.rows])
        return
    shape[parameter.partition_dim] *= axis.size
    whole = model.initial_value(name, shape, options)
    parameter.copy_(whole.chunk(axis.size, dim=parameter.partition_dim)[axis.rank])
