"""What is not recorded, as the trace itself says it: `NotSeen` in src/base/trace.h has the format. A check does
not call such a tensor missing."""

from collections.abc import Iterable

from .library import Kind, TensorId
from .names import recordable

_MOST_NAMES = 10_000  # a reader takes no more: kMaxNamesNotSeen in src/base/trace.h
_MOST_BYTES = 1 << 19  # of the names; provenance may have twice as many

# The kinds of a module's calls.
ACTIVATIONS = (Kind.INPUT, Kind.OUTPUT, Kind.GRAD_OUTPUT, Kind.GRAD_INPUT)


class NotSeen:
    def __init__(self) -> None:
        # (reason, kinds, chunk, "tensors" or "modules", name) -> iterations
        self._statements: dict[tuple[str, tuple[Kind, ...], int, str, str], set[int]] = {}
        # The same of what is left out by design: (reason, chunk, what, name) -> (kind, iteration)
        self._left_out: dict[tuple[str, int, str, str], set[tuple[Kind, int]]] = {}
        self._bytes = 0
        self.is_cut = False  # something that was left out by design is not named

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
                elif self._has_room_for(name):
                    self._statements[key] = {iteration}

    def leave_out(self, reason: str, tensor_id: TensorId, module: str | None) -> None:
        """By design. `module`: the one of whose calls all tensors of the kind are; None: the tensor alone is."""
        what, name = ("tensors", tensor_id.name) if module is None else ("modules", module)
        key = (reason, tensor_id.chunk, what, recordable(name))
        found = self._left_out.get(key)
        if found is None:
            if not self._has_room_for(key[3]):
                self.is_cut = True
                return
            found = self._left_out[key] = set()
        found.add((tensor_id.kind, tensor_id.iteration))

    def clear(self) -> None:
        self._statements.clear()
        self._left_out.clear()
        self._bytes = 0

    def _has_room_for(self, name: str) -> bool:
        """Then it takes the room."""
        size = len(name.encode())
        if len(self._statements) + len(self._left_out) >= _MOST_NAMES or self._bytes + size > _MOST_BYTES:
            return False
        self._bytes += size
        return True

    def as_list(self) -> list[dict]:
        # (reason, kinds, chunk, iterations, by design) -> names
        grouped: dict[tuple, dict[str, list[str]]] = {}

        def put(reason: str, kinds: tuple, chunk: int, when: set[int], what: str, name: str, *design: bool) -> None:
            key = (reason, kinds, chunk, tuple(sorted(when)), *design)
            grouped.setdefault(key, {"tensors": [], "modules": []})[what].append(name)

        for (reason, kinds, chunk, what, name), iterations in self._statements.items():
            put(reason, kinds, chunk, iterations, what, name)
        for (reason, chunk, what, name), found in self._left_out.items():
            # Kinds with the same iterations make one statement.
            by_iterations: dict[tuple[int, ...], list[Kind]] = {}
            for kind in sorted({kind for kind, _ in found}):
                iterations = tuple(sorted(iteration for of, iteration in found if of == kind))
                by_iterations.setdefault(iterations, []).append(kind)
            for iterations, kinds in by_iterations.items():
                put(reason, tuple(kinds), chunk, set(iterations), what, name, True)
        return [
            {
                "reason": reason,
                "kinds": [kind.text for kind in kinds],
                "iterations": list(iterations),
                "chunk": chunk,
                **names,
                **({"by_design": True} if design else {}),
            }
            for (reason, kinds, chunk, iterations, *design), names in grouped.items()
        ]
