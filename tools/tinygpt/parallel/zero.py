"""ZeRO: the optimizer divided over the data parallel ranks (Rajbhandari et al., "ZeRO: memory optimizations toward
training trillion parameter models"), with Megatron's flat buffer.

All parameters of a rank, one after the other, form one line of numbers, padded at its end to as many equal parts as
there are data parallel ranks. Rank r owns part r: it alone gets the sum of that part's gradients, has masters and
optimizer state of it, updates it, and sends it to the others. A boundary may lie anywhere in a parameter. Each
parameter has
- `main_shard_range`, [begin, end) of its elements, row-major, that this rank owns; they may be none;
- `main_param`, their masters, 1-D;
- `main_grad`, their gradient, 1-D, once gradients are reduced; before, stage 1 accumulates the whole gradient in it.

The parameters are this rank's own: with tensor parallelism, its shards."""

import math

import torch
import torch.distributed as dist

from tinygpt.optimizer import MixedPrecisionOptimizer
from tinygpt.parallel.sequence import gather, reduce_scatter


class ZeroOptimizer(MixedPrecisionOptimizer):
    """Stage 1: each rank accumulates all gradients over the micro-batches, in one buffer."""

    def __init__(self, parameters, options, axis):
        self.axis = axis
        super().__init__(parameters, options)

    def allocate(self):
        sizes = [parameter.numel() for parameter in self.parameters]
        ends = torch.tensor(sizes).cumsum(0).tolist()
        self.places = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]  # on the line
        share = math.ceil(ends[-1] / self.axis.size)
        self.own = slice(self.axis.rank * share, (self.axis.rank + 1) * share)
        self.masters = torch.zeros(share)
        for parameter, place in zip(self.parameters, self.places, strict=True):
            begin, end = (min(max(at - place.start, 0), parameter.numel()) for at in (self.own.start, self.own.stop))
            parameter.main_shard_range = begin, end
            parameter.main_param = torch.nn.Parameter(self._owned(self.masters, parameter, place))
            parameter.main_param.data.copy_(parameter.detach().flatten()[begin:end])
        self.allocate_gradients(share)

    def allocate_gradients(self, share):
        self.gradients = torch.zeros(share * self.axis.size)

    def _owned(self, part, parameter, place):
        """The elements of `parameter` in `part`, which is this rank's part of the line."""
        begin, end = (place.start + at - self.own.start for at in parameter.main_shard_range)
        return part[begin:end] if begin < end else part[:0]

    def zero_grad(self):
        self.gradients.zero_()
        self._place_whole_gradients()

    def _place_whole_gradients(self):
        for parameter, place in zip(self.parameters, self.places, strict=True):
            parameter.main_grad = self.gradients[place].view_as(parameter)

    def sum_gradients(self):
        """Over the data parallel ranks; each gets what it owns, and keeps beside it what it accumulated itself."""
        self.gradients[self.own] = reduce_scatter(self.gradients, self.axis)

    def drop_foreign_gradients(self):
        """What was accumulated here of the other ranks' parts is no gradient of anything, and no main gradient."""
        for parameter, place in zip(self.parameters, self.places, strict=True):
            parameter.main_grad = self._owned(self.gradients[self.own], parameter, place)

    def update_parameters(self):
        self._copy_parameters(gather(self.masters, self.axis))

    def _copy_parameters(self, line):
        for parameter, place in zip(self.parameters, self.places, strict=True):
            parameter.copy_(line[place].view_as(parameter))


class OverlappedZeroOptimizer(ZeroOptimizer):
    """Stage 1 that gathers the parameters while the program goes on, in the buffer of the gradients (Megatron's
    --overlap-param-gather). They are copied out before the next step, which then has the buffer for its gradients."""

    def __init__(self, parameters, options, axis):
        self.bug = options.bug
        self.gathering = None  # the collective in progress
        super().__init__(parameters, options, axis)

    def update_parameters(self):
        parts = list(self.gradients.chunk(self.axis.size))
        self.gathering = dist.all_gather(parts, self.masters, group=self.axis.group, async_op=True)

    def synchronize(self):
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering = None
            with torch.no_grad():
                self._copy_parameters(self.gradients)

    def zero_grad(self):
        # After a skipped step nothing is gathered, and the buffer still has the gradients that overflowed.
        if self.bug == "skipped-step" and self.gathering is None:
            return self._place_whole_gradients()
        self.synchronize()
        super().zero_grad()


class Zero2Optimizer(ZeroOptimizer):
    """Stage 2: a gradient is summed as soon as a backward has it, and only what a rank owns is kept."""

    def allocate_gradients(self, share):
        self.gradients = torch.zeros(share)
        for parameter, place in zip(self.parameters, self.places, strict=True):
            parameter.main_grad = self._owned(self.gradients, parameter, place)

    def zero_grad(self):
        self.gradients.zero_()

    def accumulate(self, parameter):
        begin, end = parameter.main_shard_range
        total = self.axis.sum(parameter.grad.float().contiguous())
        parameter.main_grad.add_(total.flatten()[begin:end])
        parameter.grad = None

    def sum_gradients(self):
        pass  # they are

    def drop_foreign_gradients(self):
        pass  # there are none
