"""Data parallelism: each rank trains on its share of the micro-batches and the gradients are added up."""

from tinygpt.data import micro_batch
from tinygpt.parallel.context import part_of_rank
from tinygpt.parallel.experts import is_expert


def local_batches(options, step, mesh):
    """This rank's micro-batches of step `step`: local m is the global m * dp + r, of which the context parallel rank
    has its part."""
    axis = mesh.dp
    local = options.micro_batches // axis.size
    first = step * options.micro_batches
    whole = (micro_batch(options, first + m * axis.size + axis.rank) for m in range(local))
    return [part_of_rank(batch, mesh.cp, options) for batch in whole]


def sum_gradients(model, axis):
    """Of all parameters but the experts', which have their own ranks (`sum_expert_gradients`)."""
    for parameter in model.parameters():
        if not is_expert(parameter):
            axis.sum(parameter.main_grad)
