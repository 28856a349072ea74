"""When what a program keeps beside its models is looked for, in all that Python knows of, which takes long."""

import torch

from .clock import Chunk, Clock
from .tensors import named_parameters

Shapes = dict[str, torch.Size]  # of a model's parameters, by name


class Looks:
    """At the first call of an iteration, for every model that the program has called so far, and at that of a model
    which is new: but once for those of the same names and shapes, since inner loops copy theirs for each task."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._iteration = -1
        self._shapes: list[Shapes | None] = []  # that were looked for in this iteration

    def begins_iteration(self) -> bool:
        return self._iteration != self._clock.iteration

    def due(self, chunk: Chunk) -> list[Chunk]:
        """Those that are to be looked for at a first call of `chunk`."""
        chunks = [chunk]
        if self.begins_iteration():
            self._iteration, self._shapes = self._clock.iteration, []
            chunks = list(self._clock.chunks.values())
        due = []
        for each in chunks:
            shapes = shapes_of(each.base)
            if shapes not in self._shapes:
                self._shapes.append(shapes)
                due.append(each)
        return due


def shapes_of(model: torch.nn.Module) -> Shapes | None:
    """None where it has no parameters, or some have no values yet."""
    found = dict(named_parameters(model))
    if not found or any(torch.nn.parameter.is_lazy(parameter) for parameter in found.values()):
        return None
    return {name: parameter.shape for name, parameter in found.items()}
