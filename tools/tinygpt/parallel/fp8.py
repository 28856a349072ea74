"""FP8 linears over tensor parallel ranks. Under sequence parallelism it is codes that are gathered, a byte each: every
rank rounds its part of the sequence with its own copy of the scale, and reads all parts with it."""

import torch
import torch.nn.functional as F

from tinygpt import fp8
from tinygpt.parallel.sequence import gather, reduce_scatter
from tinygpt.parallel.tensor import ColumnParallelLinear, copy_to_tensor_region, reduce_from_tensor_region


class Fp8ColumnParallelLinear(fp8.Fp8Linear):
    def __init__(self, linear, casts):
        super().__init__(linear, casts)
        self.axis, self.sequence_parallel = linear.axis, linear.sequence_parallel

    def forward(self, hidden):
        casts = self.casts
        if self.sequence_parallel:
            hidden = _GatherRounded.apply(hidden, casts.input, self.axis)
        else:
            hidden = casts.round_input(copy_to_tensor_region(hidden, self.axis))
        output = casts.round_gradient(F.linear(hidden, casts.round_weight(self.weight)))
        return output if self.bias is None else output + self.bias


class Fp8RowParallelLinear(fp8.Fp8Linear):
    def __init__(self, linear, casts):
        super().__init__(linear, casts)
        self.axis, self.sequence_parallel = linear.axis, linear.sequence_parallel

    def forward(self, hidden):
        casts = self.casts
        term = F.linear(casts.round_input(hidden), casts.round_weight(self.weight))
        if self.sequence_parallel:
            total = _ReduceScatterRounded.apply(term, casts.gradient, self.axis)
        else:
            total = casts.round_gradient(reduce_from_tensor_region(term, self.axis))
        return total if self.bias is None else total + self.bias


def convert(stage, mesh, options):
    """Puts FP8 linears into the layers of `stage`."""

    def make(linear, casts):
        kind = Fp8ColumnParallelLinear if isinstance(linear, ColumnParallelLinear) else Fp8RowParallelLinear
        return kind(linear, casts)

    fp8.convert(stage, make, options.bug)
    if options.bug == "norm-gradient-tp" and mesh.tp.size > 1 and mesh.cp.size > 1:
        _sum_norm_gradients(stage, mesh.tp)


def finish_step(stage, mesh, options):
    """Renews the scales, the same ones on all ranks that have a part of a tensor: of the sequence, of the weight, or
    the same with other micro-batches."""
    axes = [mesh.dp] if options.bug == "fp8-amax-group" else [mesh.tp, mesh.cp, mesh.dp]

    def max_over_ranks(amaxes):
        for axis in axes:
            axis.max(amaxes)
        return amaxes

    fp8.finish_step(stage, max_over_ranks)


def _sum_norm_gradients(stage, axis):
    """Of the norms before FP8 linears, whose gradients need no further sum."""
    for layer in stage.decoder.layers:
        for norm in (layer.input_layernorm, layer.pre_mlp_layernorm):
            norm.weight.register_hook(lambda grad: axis.sum(grad.clone()))


def _gather_rounded(tensor, scaling, axis):
    codes = scaling.quantise(tensor)
    codes = gather(codes.view(torch.uint8), axis).view(codes.dtype)
    return scaling.dequantise(codes, tensor.dtype)


class _GatherRounded(torch.autograd.Function):
    """This rank's part of the sequence -> the whole, rounded. The gradient is a sum over ranks, of which each gets its
    part."""

    @staticmethod
    def forward(ctx, tensor, scaling, axis):
        ctx.axis = axis
        return _gather_rounded(tensor, scaling, axis)

    @staticmethod
    def backward(ctx, grad):
        return reduce_scatter(grad, ctx.axis), None, None


class _ReduceScatterRounded(torch.autograd.Function):
    """The whole sequence, a term of a sum on each rank -> this rank's part of the sum. The gradient is gathered,
    rounded."""

    @staticmethod
    def forward(ctx, tensor, scaling, axis):
        ctx.scaling, ctx.axis = scaling, axis
        return reduce_scatter(tensor, axis)

    @staticmethod
    def backward(ctx, grad):
        return _gather_rounded(grad, ctx.scaling, ctx.axis), None, None
