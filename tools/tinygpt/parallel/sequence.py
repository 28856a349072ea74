"""Sequence parallelism: moving activations between the whole sequence and this rank's part of it.

Under sequence parallelism the tensors between the tensor parallel regions ([s, b, h]: layer norms, residual)
are split along the sequence over the same ranks. Entering a region gathers the sequence, leaving it sums and
splits (Korthikanti et al., "Reducing activation recomputation in large transformer models"). Each function
here is one such move with its adjoint as gradient."""

import torch
import torch.distributed as dist


def scatter_to_sequence_region(tensor, axis):
    """Whole sequence, the same on all ranks -> this rank's part. The gradient is gathered."""
    return _Scatter.apply(tensor, axis)


def gather_from_sequence_region(tensor, axis, buffer=None):
    """This rank's part -> whole sequence, about to be used differently by each rank: the gradient is a sum over
    ranks, of which each gets its part. It goes through `buffer`, a GatherBuffer, if there is one."""
    return _Gather.apply(tensor, axis, buffer)


def reduce_scatter_to_sequence_region(tensor, axis):
    """Whole sequence, one term of a sum per rank -> this rank's part of the sum. The gradient is gathered."""
    return _ReduceScatter.apply(tensor, axis)


def split(tensor, axis):
    """This rank's part along dimension 0."""
    return tensor.chunk(axis.size, dim=0)[axis.rank].contiguous()


def gather(tensor, axis):
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(axis.size)]
    dist.all_gather(parts, tensor.contiguous(), group=axis.group)
    return torch.cat(parts, dim=0)


def reduce_scatter(tensor, axis):
    # Not every version of gloo can reduce-scatter; the sum is the same.
    return split(axis.sum(tensor.clone(memory_format=torch.contiguous_format)), axis)


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, axis):
        ctx.axis = axis
        return split(tensor, axis)

    @staticmethod
    def backward(ctx, grad):
        return gather(grad, ctx.axis), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, axis, buffer):
        ctx.axis = axis
        whole = gather(tensor, axis)
        return whole if buffer is None else buffer.take(whole)

    @staticmethod
    def backward(ctx, grad):
        return reduce_scatter(grad, ctx.axis), None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, axis):
        ctx.axis = axis
        return reduce_scatter(tensor, axis)

    @staticmethod
    def backward(ctx, grad):
        return gather(grad, ctx.axis), None
