"""Which tensors are recorded, where `ttrace collect` was told to leave some out (`--only`, `--except`, `--kinds`,
`--depth`), what the trace says of the others, and which are recorded as sketches (`--sketch`, `--whole`).

A pattern chooses modules and parameters by name, with all that is inside a module; of models but the first the name may
begin with `model1.`, as in a report. Depth chooses among the calls of
modules: parameters, their gradients and what the optimizer makes of them are recorded at any. Scalars have no place in
the model; kinds alone choose among them. What an optimizer holds goes with `param_delta`, whose check needs it.

What is left out is named one by one, as it is seen: a tensor that the program lost is missing all the same."""

import fnmatch
import functools
from collections.abc import Sequence

from .clock import ROOT
from .config import Choice
from .library import Kind, TensorId
from .not_seen import ACTIVATIONS, NotSeen

_OPTIMIZER_STATE = frozenset(kind for kind in Kind if Kind.MASTER <= kind <= Kind.STEP_GRAD)


class Selection:
    def __init__(self, choice: Choice, not_seen: NotSeen):
        """What is left out is added to `not_seen`."""
        self._choice, self._not_seen = choice, not_seen
        self._only = [pattern.split(".") for pattern in choice.only]
        self._excluded = [pattern.split(".") for pattern in choice.excluded]
        self._whole = [pattern.split(".") for pattern in choice.whole]
        self._unused = {*choice.only, *choice.excluded, *choice.whole}
        self._takes = functools.cache(self._decide)
        self._is_whole = functools.cache(lambda chunk, path: self._fits_any(self._whole, _parts(chunk, path)))

    def leaves_out(self, tensor_id: TensorId) -> bool:
        """Whether the tensor is not to be recorded. Then the trace will say so."""
        kind = Kind.PARAM_DELTA if tensor_id.kind in _OPTIMIZER_STATE else tensor_id.kind
        is_of_call = kind in ACTIVATIONS
        path = _without_member_and_call(tensor_id.name) if is_of_call else tensor_id.name
        if self._takes(kind, tensor_id.chunk, path):
            return False
        if kind == tensor_id.kind:  # nobody misses what an optimizer held
            self._not_seen.leave_out(self._choice.reason, tensor_id, path if is_of_call else None)
        return True

    def is_sketched(self, tensor_id: TensorId) -> bool:
        """Whether a sketch will do, where libttrace finds the tensor large enough for one."""
        return self._choice.sketch and not self._is_whole(tensor_id.chunk, _without_member_and_call(tensor_id.name))

    def unused(self) -> list[str]:
        """Patterns that no name has fitted."""
        return sorted(self._unused)

    def _decide(self, kind: Kind, chunk: int, path: str) -> bool:
        choice = self._choice
        if choice.kinds and kind.text not in choice.kinds:
            return False
        if kind == Kind.SCALAR:
            return True
        depth = 0 if path == ROOT else path.count(".") + 1
        if choice.depth is not None and kind in ACTIVATIONS and depth > choice.depth:
            return False
        parts = _parts(chunk, path)
        excluded = self._fits_any(self._excluded, parts)
        return (not self._only or self._fits_any(self._only, parts)) and not excluded

    def _fits_any(self, patterns: list[list[str]], parts: list[str]) -> bool:
        """Whether one of them fits the name, or that of a module around it."""
        found = False
        for pattern in patterns:
            if any(_fits(["**", *pattern], parts[:end]) for end in range(1, len(parts) + 1)):
                self._unused.discard(".".join(pattern))
                found = True
        return found


def _parts(chunk: int, path: str) -> list[str]:
    """Of the name as reports have it."""
    return [*([f"model{chunk}"] if chunk else []), *path.split(".")]


def _without_member_and_call(name: str) -> str:
    return name.partition("#")[0].partition(":")[0]


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """As `matches` of src/base/annotation.h: `**` stands for any number of parts."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return _fits(pattern[1:], parts) or (bool(parts) and _fits(pattern, parts[1:]))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(pattern[1:], parts[1:])
