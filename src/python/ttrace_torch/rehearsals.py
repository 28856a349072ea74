"""Calls of a model that no backward follows, before it trains: a dry run in `__init__` that asks for a shape, a look at
the model before it is wrapped, observers that are run once, a call in which a model makes its parameters. They are
recorded, since nothing tells at once that they are no micro-batches; the trace says it in the end, and whoever reads it
leaves them out. So are, at any time, calls inside a transform of torch.func beside those that train: a Fisher
information between two tasks. Of these nothing but the call was seen."""

from typing import Any

from .clock import Chunk, Clock, Microbatch


class Rehearsals:
    def __init__(self) -> None:
        self._chunks: set[int] = set()
        self._microbatches: set[tuple[int, int, int]] = set()  # iteration, chunk, micro-batch

    def find(self, clock: Clock) -> None:
        """At the end of a recorded iteration."""
        chunks = list(clock.chunks.values())
        for chunk in chunks:
            chunk.trains = chunk.trains or any(microbatch.arrived for microbatch in chunk.microbatches)
        for chunk in chunks:
            if chunk.trains:
                self._chunks.discard(chunk.number)
                # A step ends an iteration. After one, a micro-batch without a backward is a mistake that is to be seen.
                no_microbatches = _before_training(chunk) if clock.iteration == 0 else []
                self._microbatches |= {
                    (clock.iteration, chunk.number, microbatch.number)
                    for microbatch in [*no_microbatches, *_beside_training(chunk)]
                }
            elif any(other.trains and other.has_for_part(chunk) for other in chunks):
                self._chunks.add(chunk.number)

    def as_document(self) -> dict[str, Any]:
        """For the provenance; empty where there was none."""
        parts = {"chunks": sorted(self._chunks), "microbatches": sorted(self._microbatches)}
        return {key: part for key, part in parts.items() if part}

    def clear(self) -> None:
        self._chunks.clear()
        self._microbatches.clear()


def _before_training(chunk: Chunk) -> list[Microbatch]:
    """The micro-batches of the iteration that no gradient came back to, before the first that one came back to."""
    for number, microbatch in enumerate(chunk.microbatches):
        if microbatch.arrived:
            return chunk.microbatches[:number]
    return []


def _beside_training(chunk: Chunk) -> list[Microbatch]:
    """The micro-batches of the iteration that were begun inside a transform, if others are trained."""
    if not any(each.arrived for each in chunk.microbatches if not each.in_transform):
        return []
    return [each for each in chunk.microbatches if each.in_transform and not each.arrived]
