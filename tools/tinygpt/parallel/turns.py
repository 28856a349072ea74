"""In which order a pipeline stage runs its micro-batches: one forward, one backward (Narayanan et al., "Efficient
large-scale language model training on GPU clusters", figure 4), plain (top) or interleaved (bottom).

Micro-batches come in groups of as many as there are stages. A stage takes a group through its first chunk, then
through its second, and so on, before it begins the next group; backwards likewise, the last chunk first. It begins
with as many forwards as keep it busy until the first backward reaches it, then runs one forward and one backward in
turn, then the backwards that are left, so that it never holds more micro-batches than the depth behind it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    is_forward: bool
    chunk: int
    micro_batch: int


def turns(stages, stage, chunks, micro_batches):
    """All turns of a step. Interleaved (chunks > 1), `micro_batches` is a multiple of `stages`."""
    total = chunks * micro_batches
    behind = stages - 1 - stage
    warm_up = min(total, behind if chunks == 1 else 2 * behind + (chunks - 1) * stages)

    def turn(number, is_forward):
        group, place = divmod(number, stages * chunks)
        chunk, within = divmod(place, stages)
        return Turn(is_forward, chunk if is_forward else chunks - 1 - chunk, group * stages + within)

    order = [turn(number, True) for number in range(warm_up)]
    for number in range(total - warm_up):
        order += [turn(warm_up + number, True), turn(number, False)]
    return order + [turn(number, False) for number in range(total - warm_up, total)]
