"""Experts over ranks. The ranks of a pipeline stage are counted again, in the experts' order:

    rank in the stage = etp + ETP * (ep + EP * edp)

Expert parallelism: of E experts, local i of rank ep is the global ep * E/EP + i. Expert tensor parallelism: an expert's
inner neurons are split over etp. A block (ETP * EP consecutive ranks) holds every expert once, and ranks that differ in
edp only hold the same.

Every rank sends each of its rows to all etp parts of each chosen expert, by one all-to-all in its block, and each part
sends its term of the result back. The source sums the terms, weighted by the router's probabilities.

Rows of different ranks are different tokens. Without sequence parallelism, where all tp ranks have the same rows, each
dispatches its part of them and the results are gathered (as DeepSpeed does: `drop_tokens`, `gather_tokens`).

Parameters of experts have `allreduce = False`, Megatron's mark: their gradients are not summed as others are."""

import torch
import torch.distributed as dist
from torch import nn

from tinygpt import moe
from tinygpt.parallel.llama import even_part, mark_stacked
from tinygpt.parallel.sequence import gather, scatter_to_sequence_region, split


class MoE(moe.MoE):
    def __init__(self, options, mesh):
        nn.Module.__init__(self)
        self.router = moe.Router(options)
        self.router.weight.sequence_parallel = options.sp and options.bug != "router-gradient"
        self.experts = Experts(options, mesh)


class Experts(nn.Module):
    def __init__(self, options, mesh):
        super().__init__()
        self.rank, self.tp, self.axes = mesh.rank, mesh.tp, mesh.experts
        self.experts = options.experts
        self.rows_are_shared = mesh.tp.size > 1 and not options.sp
        local = options.experts // self.axes.ep.size
        self.local_experts = nn.ModuleList(moe.Expert(options, self.axes.etp.size) for _ in range(local))
        for expert in self.local_experts:
            _mark(expert.linear_fc1.weight, partition_dim=0)
            _mark(expert.linear_fc2.weight, partition_dim=1)
            if options.arch == "llama":
                gate = up = even_part(4 * options.hidden, self.axes.etp)
                mark_stacked(expert.linear_fc1.weight, [gate, up])

    def mix(self, rows, weights, choices):
        """As the plain model's, of this rank's rows."""
        if not self.rows_are_shared:
            return self._mix(rows, weights, choices, moe.identify(rows, self.rank))
        part = split(rows, self.tp)
        token_ids = moe.identify(part, self.rank, first=self.tp.rank * len(part))
        rows, weights = (scatter_to_sequence_region(whole, self.tp) for whole in (rows, weights))
        return gather_shared(self._mix(rows, weights, split(choices, self.tp), token_ids), self.tp)

    def _mix(self, rows, weights, choices, token_ids):
        route = Route(choices, self.experts, self.axes)
        choice = route.choices // choices.shape[1]  # the row of each copy that is sent
        hidden = route.to_experts(rows[choice])
        identities = route.to_experts(token_ids[choice])
        inputs = zip(self.local_experts, hidden, identities, strict=True)
        results = [expert(rows_of_it, token_ids=ids) for expert, rows_of_it, ids in inputs]
        of_choices = weights.flatten()[route.choices].unsqueeze(-1)
        combined = torch.zeros(rows.shape, dtype=torch.float32)
        return combined.index_add(0, choice, route.to_sources(results).float() * of_choices).to(rows.dtype)


class Route:
    """Where the rows of a block go, from what each of its ranks chose (int64 [n, K])."""

    def __init__(self, chosen, experts, axes):
        self.axis = axes.block
        chosen = chosen.flatten()
        counts = chosen.bincount(minlength=experts).view(axes.ep.size, -1)  # by ep rank and its local expert
        by_expert = chosen.argsort(stable=True).split(counts.sum(dim=1).tolist())
        # The choices (places in `chosen`) whose rows this rank sends, in the order of sending: by rank, then expert.
        self.choices = torch.cat([part for part in by_expert for _ in range(axes.etp.size)])
        sent = counts.repeat_interleave(axes.etp.size, dim=0)  # [rank of the block, its local experts]
        self.received = torch.empty_like(sent)  # the same of each sender, for this rank's experts
        dist.all_to_all_single(self.received, sent, group=self.axis.group)
        self.sizes = sent.sum(dim=1).tolist(), self.received.sum(dim=1).tolist()

    def to_experts(self, rows):
        """Of `rows`, one for each of `choices`, and those of the block's other ranks: what each local expert gets, by
        rank."""
        arrived = _AllToAll.apply(rows, *self.sizes, self.axis)
        pieces = arrived.split(self.received.flatten().tolist())
        local = self.received.shape[1]
        return [torch.cat(pieces[expert::local]) for expert in range(local)]

    def to_sources(self, results):
        """Of the results of the block's experts (here: `results`, one tensor per local expert), those for `choices`."""
        pieces = [result.split(sizes) for result, sizes in zip(results, self.received.t().tolist(), strict=True)]
        leaving = torch.cat([piece for of_sender in zip(*pieces, strict=True) for piece in of_sender])
        return _AllToAll.apply(leaving, *reversed(self.sizes), self.axis)


class _AllToAll(torch.autograd.Function):
    """Sends `sent[r]` rows to rank r of the axis, in order, and gets `received[r]` from it. The gradient goes back."""

    @staticmethod
    def forward(ctx, rows, sent, received, axis):
        ctx.sent, ctx.received, ctx.axis = sent, received, axis
        return _all_to_all(rows, sent, received, axis)

    @staticmethod
    def backward(ctx, grad):
        return _all_to_all(grad, ctx.received, ctx.sent, ctx.axis), None, None, None


def _all_to_all(rows, sent, received, axis):
    arrived = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=axis.group)
    return arrived


def gather_shared(tensor, axis):
    """This rank's part -> the whole, about to be used by all ranks alike: the gradient is this rank's part of it."""
    return _GatherShared.apply(tensor, axis)


class _GatherShared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, axis):
        ctx.axis = axis
        return gather(tensor, axis)

    @staticmethod
    def backward(ctx, grad):
        return split(grad, ctx.axis), None


def _mark(parameter, partition_dim):
    parameter.allreduce = False
    parameter.tensor_model_parallel = True
    parameter.partition_dim = partition_dim


def is_expert(parameter):
    return not getattr(parameter, "allreduce", True)


def global_expert(name, options, mesh):
    """`name`, below a layer, with the global number of an expert in place of the local."""
    prefix, found, rest = name.partition("local_experts.")
    if not found:
        return name
    local, rest = rest.split(".", 1)
    ep = mesh.experts.ep
    return f"{prefix}{found}{ep.rank * (options.experts // ep.size) + int(local)}.{rest}"


def sum_expert_gradients(model, edp):
    """Over the blocks, each of which computed them from the tokens of all its ranks."""
    for parameter in model.parameters():
        if is_expert(parameter):
            edp.sum(parameter.main_grad)
