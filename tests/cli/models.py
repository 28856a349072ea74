"""A model small enough to see through. In order of execution: an embedding, one layer, a loss; then the gradient of the
layer's weight. Its values are small integers, exact in every dtype."""

import numpy

from traces import Tensor


def model(width=8):
    def values(*shape):
        return (numpy.arange(numpy.prod(shape), dtype="float32") % 7 + 1).reshape(shape)

    return [
        Tensor("embedding", values(4, width)),
        Tensor("layers.0.mlp", values(4, width)),
        Tensor("loss", numpy.array(2.5, "float32"), kind="scalar"),
        Tensor("layers.0.mlp.weight", values(width, width), kind="main_grad", microbatch=-1),
    ]


def shards(tensors, world_size=2):
    """The tensors of each rank under ANNOTATIONS."""
    dims = {"embedding": 1, "layers.0.mlp.weight": 0}

    def part(tensor, rank):
        if tensor.name not in dims:
            return tensor
        return tensor.with_values(numpy.split(tensor.values, world_size, axis=dims[tensor.name])[rank])

    return [[part(tensor, rank) for tensor in tensors] for rank in range(world_size)]


def changed(tensors, name, where, value):
    """The tensors with one element of one of them set; `where` is `...` for all elements."""

    def change(tensor):
        values = tensor.values.copy()
        values[where] = value
        return tensor.with_values(values)

    assert any(tensor.name == name for tensor in tensors)
    return [change(tensor) if tensor.name == name else tensor for tensor in tensors]
