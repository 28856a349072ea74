"""Data parallelism: each rank trains on its share of the micro-batches and the gradients are added up."""

from tinygpt.data import micro_batch
from tinygpt.parallel.context import part_of_rank


def local_batches(options, step, mesh):
    """This rank's micro-batches of step `step`: local m is the global m * dp + r, of which the context parallel rank
    has its part."""
    axis = mesh.dp
    local = options.micro_batches // axis.size
    first = step * options.micro_batches
    whole = (micro_batch(options, first + m * axis.size + axis.rank) for m in range(local))
    return [part_of_rank(batch, mesh.cp, options) for batch in whole]


def sum_gradients(model, axis):
    for parameter in model.parameters():
        axis.sum(parameter.main_grad)
