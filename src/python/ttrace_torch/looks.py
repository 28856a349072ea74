"""When what a program keeps beside its models is looked for, in all that Python knows of, which takes long."""

from collections.abc import Callable
from functools import cached_property

import torch

from .clock import Chunk
from .collector import Collector
from .living import Living
from .tensors import named_parameters

Shapes = dict[str, torch.Size]  # of a model's parameters, by name


class Look:
    """At all that is alive as a model is called, on behalf of `models`: none where there is nothing to look for."""

    def __init__(self, models: list[Chunk]):
        self.models = models

    @cached_property
    def living(self) -> Living:
        return Living()


class Looks:
    """At the first call of an iteration, for every model that the program has called so far, and at that of a model
    which is new: but once for those of the same names and shapes, since inner loops copy theirs for each task."""

    def __init__(self, collector: Collector):
        self._clock = collector.clock
        self._iteration = -1
        self._shapes: list[Shapes | None] = []  # that were looked for in this iteration
        self.on_iteration: list[Callable[[], None]] = []  # before the first look of each
        self.on_look: list[Callable[[Look], None]] = []  # before the first call of each model in an iteration
        collector.on_first_call.append(self._look)

    def has_begun(self) -> bool:
        """Whether a model has been called in this iteration."""
        return self._iteration == self._clock.iteration

    def _look(self, chunk: Chunk) -> None:
        begins = not self.has_begun()
        if begins:
            self._iteration, self._shapes = self._clock.iteration, []
            for act in self.on_iteration:
                act()
        look = Look(self._due(list(self._clock.chunks.values()) if begins else [chunk]))
        for consider in self.on_look:
            consider(look)

    def _due(self, chunks: list[Chunk]) -> list[Chunk]:
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
