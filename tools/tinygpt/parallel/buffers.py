"""Communication buffers: memory that is registered for communication once, into which one linear's input is gathered
after another's (Transformer Engine, where communication overlaps with multiplication). It is free again as soon as the
linear's forward is over; what backward needs must be copied."""

import functools

import torch


class GatherBuffer:
    def __init__(self, keep_copies):
        self.memory = torch.empty(0)
        self.keep_copies = keep_copies

    def take(self, gathered):
        """`gathered`, by way of the buffer: a copy, which the next one does not overwrite."""
        if self.memory.shape != gathered.shape:
            self.memory = torch.empty_like(gathered)
        self.memory.copy_(gathered)
        # To autograd another tensor, as is memory that communication writes: it does not notice what changes there.
        contents = self.memory.data
        return contents.clone() if self.keep_copies else contents


def gather_buffer(options, name):
    """The one of the linears called `name`, of all layers; None without --gather-buffers."""
    return _shared(name, options.bug != "overwritten-buffer") if options.gather_buffers else None


@functools.cache
def _shared(name, keep_copies):
    return GatherBuffer(keep_copies)
