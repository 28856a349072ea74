"""Tensor parallel layers in Megatron's way (Shoeybi et al., "Megatron-LM", section 3).

A column-parallel linear splits its outputs over the ranks, the row-parallel one after it splits its inputs in
the same way, so that only the sum at the end needs communication. What enters is the same on all ranks, or,
under sequence parallelism, each rank's part of the sequence. What leaves is so too.

A sharded parameter has `tensor_model_parallel = True` and `partition_dim`. A parameter whose gradient each rank
computes from its own part of the sequence only has `sequence_parallel = True`: the gradient is a sum over ranks
that is still to be made."""

import torch
import torch.nn.functional as F
from torch import nn

from tinygpt.model import mask_padding
from tinygpt.parallel.sequence import gather_from_sequence_region, reduce_scatter_to_sequence_region


class ColumnParallelLinear(nn.Module):
    """[s or s/tp, b, in] -> [s, b, out/tp]. `buffer`: the GatherBuffer in which the sequence is gathered, if any."""

    def __init__(self, inputs, outputs, axis, sequence_parallel, bias=True, buffer=None):
        super().__init__()
        self.axis = axis
        self.sequence_parallel = sequence_parallel
        self.buffer = buffer
        self.weight = sharded_parameter(0, outputs // axis.size, inputs)
        self.bias = sharded_parameter(0, outputs // axis.size) if bias else None

    def forward(self, hidden):
        if self.sequence_parallel:
            hidden = gather_from_sequence_region(hidden, self.axis, self.buffer)
        else:
            hidden = copy_to_tensor_region(hidden, self.axis)
        return F.linear(hidden, self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """[s, b, in/tp] -> [s or s/tp, b, out]. The bias is added to the sum, once."""

    def __init__(self, inputs, outputs, axis, sequence_parallel, bias=True):
        super().__init__()
        self.axis = axis
        self.sequence_parallel = sequence_parallel
        self.weight = sharded_parameter(1, outputs, inputs // axis.size)
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        if bias:
            self.bias.sequence_parallel = sequence_parallel

    def forward(self, hidden):
        leave = reduce_scatter_to_sequence_region if self.sequence_parallel else reduce_from_tensor_region
        total = leave(F.linear(hidden, self.weight), self.axis)
        return total if self.bias is None else total + self.bias


class VocabParallelEmbedding(nn.Module):
    """[b, s] -> [b, s, h], the same on all ranks. Each rank holds the rows of its range of ids."""

    def __init__(self, vocab, hidden, axis, bug=None):
        super().__init__()
        self.axis = axis
        self.bug = bug
        self.weight = sharded_parameter(0, vocab // axis.size, hidden)
        self.start = axis.rank * (vocab // axis.size)
        self.end = self.start + vocab // axis.size

    def forward(self, tokens):
        foreign = (tokens < self.start) | (tokens >= self.end)
        local = (tokens - self.start).masked_fill(foreign, 0)
        embedded = F.embedding(local, self.weight)
        if self.bug == "embedding-mask":
            foreign = (local < self.start) | (local >= self.end)
        # Another rank has the row of a foreign token; this one adds nothing to it.
        embedded = embedded.masked_fill(foreign.unsqueeze(-1), 0)
        return reduce_from_tensor_region(embedded, self.axis)


class VocabParallelCrossEntropy(nn.Module):
    def __init__(self, vocab, axis):
        super().__init__()
        self.vocab = vocab
        self.axis = axis

    def forward(self, logits, labels):
        """logits [s, b, v/tp], labels [b, s] -> fp32 [b, s], the same on all ranks."""
        logits = mask_padding(logits.float(), self.vocab, first_id=self.axis.rank * logits.shape[-1])
        return _CrossEntropy.apply(logits, labels.t(), self.axis).t()


class _CrossEntropy(torch.autograd.Function):
    """loss = log(sum_j exp(x_j)) - x_label, with each sum over the vocabulary one over ranks too."""

    @staticmethod
    def forward(ctx, logits, labels, axis):
        logits = logits - axis.max(logits.amax(dim=-1)).unsqueeze(-1)
        start = axis.rank * logits.shape[-1]
        foreign = (labels < start) | (labels >= start + logits.shape[-1])
        local = (labels - start).masked_fill(foreign, 0).unsqueeze(-1)
        of_label = logits.gather(-1, local).squeeze(-1).masked_fill(foreign, 0)
        exponentials = logits.exp()
        total = axis.sum(exponentials.sum(dim=-1))
        ctx.save_for_backward(exponentials / total.unsqueeze(-1), local, foreign)
        return total.log() - axis.sum(of_label)

    @staticmethod
    def backward(ctx, grad):
        probabilities, local, foreign = ctx.saved_tensors
        own = (~foreign).to(probabilities.dtype).unsqueeze(-1)
        return probabilities.scatter_add(-1, local, -own) * grad.unsqueeze(-1), None, None


def sharded_parameter(partition_dim, *shape):
    parameter = nn.Parameter(torch.empty(*shape))
    parameter.tensor_model_parallel = True
    parameter.partition_dim = partition_dim
    return parameter


def is_sharded(parameter):
    return getattr(parameter, "tensor_model_parallel", False)


def reduce_tensor_parallel_gradients(model, axis):
    """Finishes the gradients of which each rank has a part of the sequence."""
    for parameter in model.parameters():
        if getattr(parameter, "sequence_parallel", False):
            axis.sum(parameter.main_grad)


def copy_to_tensor_region(tensor, axis):
    """The same on all ranks, about to be used differently by each: the gradient is a sum over ranks."""
    return _Copy.apply(tensor, axis)


def reduce_from_tensor_region(tensor, axis):
    """One term of a sum per rank -> the sum. The gradient is the same on all ranks."""
    return _Reduce.apply(tensor, axis)


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, axis):
        ctx.axis = axis
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, grad):
        return ctx.axis.sum(grad.clone(memory_format=torch.contiguous_format)), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, axis):
        return axis.sum(tensor.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx, grad):
        return grad, None
