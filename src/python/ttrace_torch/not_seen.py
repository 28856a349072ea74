"""What could not be recorded, as the trace itself says it: `NotSeen` in include/ttrace/trace.h has the format. A check
does not call such a tensor missing."""

from collections.abc import Iterable

from .library import Kind
from .names import recordable

_MOST_NAMES = 10_000  # a reader takes no more: kMaxNamesNotSeen in ttrace/trace.h
_MOST_BYTES = 1 << 19  # of the names; provenance may have twice as many

# The kinds of a module's calls.
ACTIVATIONS = (Kind.INPUT, Kind.OUTPUT, Kind.GRAD_OUTPUT, Kind.GRAD_INPUT)


class NotSeen:
    def __init__(self) -> None:
        # (reason, kinds, chunk, "tensors" or "modules", name) -> iterations
        self._statements: dict[tuple[str, tuple[Kind, ...], int, str, str], set[int]] = {}
        self._bytes = 0

    def add(
        self,
        reason: str,
        kinds: tuple[Kind, ...],
        iteration: int,
        chunk: int,
        *,
        tensors: Iterable[str] = (),
        modules: Iterable[str] = (),
    ) -> None:
        """What is too much for a trace is left out: a check will then call it missing."""
        for what, names in (("tensors", tensors), ("modules", modules)):
            for name in map(recordable, names):
                key = (reason, kinds, chunk, what, name)
                if key in self._statements:
                    self._statements[key].add(iteration)
                elif len(self._statements) < _MOST_NAMES and self._bytes + len(name.encode()) <= _MOST_BYTES:
                    self._statements[key] = {iteration}
                    self._bytes += len(name.encode())

    def as_list(self) -> list[dict]:
        grouped: dict[tuple, dict] = {}
        for (reason, kinds, chunk, what, name), iterations in self._statements.items():
            key = (reason, kinds, chunk, tuple(sorted(iterations)))
            statement = grouped.setdefault(
                key,
                {
                    "reason": reason,
                    "kinds": [kind.text for kind in kinds],
                    "iterations": list(key[3]),
                    "chunk": chunk,
                    "tensors": [],
                    "modules": [],
                },
            )
            statement[what].append(name)
        return list(grouped.values())
