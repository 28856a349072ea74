"""Ring attention (Liu et al., "Ring attention with blockwise transformers"): the ranks' blocks of keys and values go
round, and each rank merges what its queries see in one block after another.

For the scores x_j of a query, softmax(x) v = sum_j exp(x_j - m) v_j / sum_j exp(x_j - m) for any m. The two sums grow
block by block, with m the largest score so far; when it grows by d, both are multiplied by exp(-d). A rank begins with
its own block, in which each query sees itself, so that m is finite from then on.

Backward needs of forward only log(sum_j exp(x_j)), which gives the probabilities p of a block back. With g the
gradient of the output o, that of x is p * (g v - g o). The blocks go round again, each together with the gradient of
its keys and values so far, which has come home after as many steps as there are ranks. Sums are kept in fp32."""

import math

import torch
import torch.distributed as dist


def ring_attention(query, key, value, hidden_by_rank, axis, bug=None):
    """Attention of this rank's queries to all ranks' keys and values, three times [b, s, heads, d] -> the same.
    `hidden_by_rank` has, for the block of each rank, bool [s, s]: True where a query does not see a key."""
    return _Ring.apply(query, key, value, hidden_by_rank, axis, bug)


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, hidden_by_rank, axis, bug):
        queries = _heads_first(query) / math.sqrt(query.shape[-1])
        largest = queries.new_full((*queries.shape[:-1], 1), -math.inf)
        total, output = torch.zeros_like(largest), torch.zeros_like(queries)
        block = torch.stack((key, value))
        for source in _sources(axis):
            keys, values = _heads_first(block)
            scores = _scores(queries, keys, hidden_by_rank[source])
            new_largest = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
            shrink, weights = (largest - new_largest).exp(), (scores - new_largest).exp()
            total = total * shrink + weights.sum(dim=-1, keepdim=True)
            output = output * shrink + weights @ values
            largest = new_largest
            if source != _last_source(axis):
                block = _pass_on(block, axis)
        output = output / total
        ctx.save_for_backward(query, key, value, output, largest + total.log())
        ctx.hidden_by_rank, ctx.axis, ctx.bug = hidden_by_rank, axis, bug
        return _sequence_first(output).to(query.dtype)

    @staticmethod
    def backward(ctx, grad):
        query, key, value, output, log_total = ctx.saved_tensors
        scale = 1 / math.sqrt(query.shape[-1])
        if ctx.bug != "strided-gradient":
            grad = grad.contiguous()
        queries, grad = _heads_first(query) * scale, _heads_first(_in_memory(grad))
        grad_along_output = (grad * output).sum(dim=-1, keepdim=True)
        grad_queries = torch.zeros_like(queries)
        block = torch.stack((key, value))
        grad_block = torch.zeros_like(_heads_first(block))
        for source in _sources(ctx.axis):
            keys, values = _heads_first(block)
            probabilities = (_scores(queries, keys, ctx.hidden_by_rank[source]) - log_total).exp()
            grad_scores = probabilities * (grad @ values.transpose(-1, -2) - grad_along_output)
            grad_queries += grad_scores @ keys
            grad_block[0] += grad_scores.transpose(-1, -2) @ queries
            grad_block[1] += probabilities.transpose(-1, -2) @ grad
            grad_block = _pass_on(grad_block, ctx.axis)
            if source != _last_source(ctx.axis):
                block = _pass_on(block, ctx.axis)
        grad_key, grad_value = _sequence_first(grad_block).to(key.dtype)
        return _sequence_first(grad_queries * scale).to(query.dtype), grad_key, grad_value, None, None, None


def _sources(axis):
    """Whose block this rank has, step by step: its own, that of the rank before, ..."""
    return [(axis.rank - step) % axis.size for step in range(axis.size)]


def _last_source(axis):
    return (axis.rank + 1) % axis.size


def _scores(queries, keys, hidden):
    return (queries @ keys.transpose(-1, -2)).masked_fill(hidden, -math.inf)


def _pass_on(block, axis):
    """Sends this rank's block to the next rank; that of the rank before."""
    block = block.contiguous()
    received = torch.empty_like(block)
    after, before = axis.peers[(axis.rank + 1) % axis.size], axis.peers[axis.rank - 1]
    requests = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, block, after, axis.group), dist.P2POp(dist.irecv, received, before, axis.group)]
    )
    for request in requests:
        request.wait()
    return received


def _in_memory(tensor):
    """What a fused attention kernel reads, which gets an address and a shape: one element after another."""
    return tensor.as_strided(tensor.shape, torch.empty(tensor.shape, device="meta").stride())


def _heads_first(tensor):
    """[..., b, s, heads, d] -> fp32 [..., b, heads, s, d]."""
    return tensor.float().transpose(-3, -2)


def _sequence_first(tensor):
    return tensor.transpose(-3, -2)
