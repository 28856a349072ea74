"""Tensor parallelism of the stacked weights of a Llama: a rank's rows are its part of each block, one after another.

Where the tensor parallel size does not divide the key and value heads, neighbouring ranks hold the same ones, each for
its own query heads. Such rows are replicas: their gradients are terms of a sum over the ranks that hold them."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from tinygpt import llama
from tinygpt.parallel.buffers import gather_buffer
from tinygpt.parallel.context import core_attention
from tinygpt.parallel.tensor import ColumnParallelLinear, RowParallelLinear, sharded_parameter


@dataclass(frozen=True)
class Part:
    """Of a block of `size` rows this rank has [start, end), and lower ranks have those before `owned` too."""

    size: int
    start: int
    end: int
    owned: int

    def times(self, rows):
        return Part(self.size * rows, self.start * rows, self.end * rows, self.owned * rows)


def even_part(size, axis):
    start = axis.rank * size // axis.size
    return Part(size, start, start + size // axis.size, start)


def kv_part(options, queries):
    """The key and value heads at which the query heads `queries`, a Part, look."""
    per_kv = options.heads // options.key_value_heads
    first_new = math.ceil(queries.start / per_kv)  # the lower ranks have all query heads before
    return Part(options.key_value_heads, queries.start // per_kv, math.ceil(queries.end / per_kv), first_new)


class StackedColumnParallelLinear(ColumnParallelLinear):
    """[s or s/tp, b, in] -> [s, b, rows of this rank]. `parts` has a Part of each block, in rows."""

    def __init__(self, inputs, parts, axis, sequence_parallel, buffer=None):
        nn.Module.__init__(self)
        self.axis = axis
        self.sequence_parallel = sequence_parallel
        self.buffer = buffer
        self.bias = None
        self.weight = sharded_parameter(0, sum(part.end - part.start for part in parts), inputs)
        mark_stacked(self.weight, parts)


def mark_stacked(weight, parts):
    """Gives a weight whose rows on this rank are `parts` of blocks
    - `whole_rows`, the number of rows of the whole weight,
    - `rows`, which of them this rank has, int64,
    - `owned_rows`, True for those that no lower rank has."""
    sizes = [part.size for part in parts]
    blocks = torch.arange(sum(sizes)).split(sizes)
    weight.whole_rows = sum(sizes)
    weight.rows = torch.cat([block[part.start : part.end] for block, part in zip(blocks, parts, strict=True)])
    weight.owned_rows = torch.cat([torch.arange(part.start, part.end) >= part.owned for part in parts])


class SelfAttention(llama.SelfAttention):
    def __init__(self, options, mesh):
        nn.Module.__init__(self)
        self.head_size = options.hidden // options.heads
        queries = even_part(options.heads, mesh.tp)
        keys = values = kv_part(options, queries)
        parts = [part.times(self.head_size) for part in (queries, keys, values)]
        self.widths = [part.end - part.start for part in parts]
        self.linear_qkv = StackedColumnParallelLinear(
            options.hidden, parts, mesh.tp, options.sp, gather_buffer(options, "linear_qkv")
        )
        self.linear_qkv.weight.has_shared_rows = options.key_value_heads % mesh.tp.size != 0
        kv_of_head = torch.arange(queries.start, queries.end) * options.key_value_heads // options.heads
        self.core_attention = core_attention(options, mesh.cp, kv_of_head - keys.start)
        self.linear_proj = RowParallelLinear(options.hidden, options.hidden, mesh.tp, options.sp, bias=False)


class MLP(llama.MLP):
    def __init__(self, options, axis):
        nn.Module.__init__(self)
        gate = up = even_part(4 * options.hidden, axis)
        self.linear_fc1 = StackedColumnParallelLinear(
            options.hidden, [gate, up], axis, options.sp, gather_buffer(options, "linear_fc1")
        )
        self.activation = llama.SwiGLU()
        self.linear_fc2 = RowParallelLinear(4 * options.hidden, options.hidden, axis, options.sp, bias=False)


def sum_shared_rows(model, axis):
    """Finishes the gradients of rows that several ranks hold."""
    for parameter in model.parameters():
        if getattr(parameter, "has_shared_rows", False):
            gradient = parameter.main_grad
            whole = gradient.new_zeros(parameter.whole_rows, *gradient.shape[1:])
            whole[parameter.rows] = gradient
            gradient.copy_(axis.sum(whole)[parameter.rows])
