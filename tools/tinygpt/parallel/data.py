"""Data parallelism: each rank trains on its share of the micro-batches and the gradients are averaged."""

from tinygpt.data import micro_batch
from tinygpt.parallel.experts import is_expert


def local_batches(options, step, axis):
    """This rank's micro-batches of step `step`: local m is the global m * dp + r."""
    local = options.micro_batches // axis.size
    first = step * options.micro_batches
    return [micro_batch(options, first + m * axis.size + axis.rank) for m in range(local)]


def average_gradients(model, axis):
    """Averages, since each rank divided its losses by the number of its own micro-batches. Experts have their own ranks
    (`reduce_expert_gradients`)."""
    for parameter in model.parameters():
        if not is_expert(parameter):
            axis.sum(parameter.main_grad).div_(axis.size)
