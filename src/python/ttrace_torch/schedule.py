"""Which iterations are recorded: those of `ttrace collect --iterations`; or, under `ttrace watch`, every N-th and some
by chance, as long as they are watched and checked in time.

The ranks of a watched job ask nobody but the file system, and wait for nothing. The watching process says every how
many iterations, each number from an iteration on that no rank has come to (`schedule.json`). Where its file `watching`
is gone, nobody looks at what is recorded, and no rank records any more. Where it is behind, iterations are left out:
ranks that do not agree on that leave pieces of one, which it removes."""

import hashlib
import json
import os
from typing import Protocol

from .config import Config
from .library import Kind
from .zero_gradients import MOST_FURTHER

# Of light iterations only what carries over into the next is recorded, and what tells of it: as `is_light` of
# src/base/trace.h.
LIGHT = frozenset((Kind.SCALAR, Kind.MAIN_GRAD, Kind.PARAM_DELTA, Kind.PARAM_AFTER, Kind.BUFFER_AFTER))

_MOST_WAITING = 2  # iterations that are recorded and not checked yet
_CHANCE = 4  # in one of so many periods a further iteration is recorded, at any place


class Schedule(Protocol):
    def is_due(self, iteration: int) -> bool:
        """Whether it is to be recorded, where nothing comes in between."""

    def takes(self, iteration: int) -> bool:
        """Whether it is recorded: once it has begun, the same each time."""

    def is_over(self, iteration: int) -> bool:
        """Whether nothing is recorded from this one on."""

    def is_light(self, iteration: int) -> bool:
        """Whether of this one, which is recorded, only what carries over into the next is (LIGHT)."""

    def left_from(self, iteration: int) -> list[int]:
        """Those that were asked for by number, from this one on."""

    def go_on_to(self, iteration: int) -> bool:
        """Records this one as well, which nobody asked for, behind those that were; False where it is in any case, or
        may not be."""

    def further(self) -> list[int]:
        """Those that `go_on_to` added, and the light ones."""


class Listed:
    def __init__(self, iterations: frozenset[int], then: int):
        """Those numbers, and as many light ones behind the last."""
        self._iterations = iterations
        self._further: list[int] = []
        self._light = set(range(max(iterations) + 1, max(iterations) + 1 + then))

    def is_due(self, iteration: int) -> bool:
        return iteration in self._iterations or iteration in self._further or iteration in self._light

    takes = is_due

    def is_over(self, iteration: int) -> bool:
        return iteration > max({*self._iterations, *self._further, *self._light})

    def is_light(self, iteration: int) -> bool:
        return iteration in self._light

    def left_from(self, iteration: int) -> list[int]:
        return sorted(each for each in self._iterations if each >= iteration)

    def go_on_to(self, iteration: int) -> bool:
        is_whole = self.is_due(iteration) and not self.is_light(iteration)
        if is_whole or iteration > max(self._iterations) + MOST_FURTHER:
            return False
        self._light.discard(iteration)
        self._further.append(iteration)
        return True

    def further(self) -> list[int]:
        return sorted({*self._further, *self._light})


class Watched:
    def __init__(self, directory: str, seed: int):
        self._directory, self._seed = directory, seed
        self._every: list[tuple[int, int]] = []  # from which iteration on, and every how many
        self._latest, self._takes_latest = -1, False
        self._is_over = False

    def is_due(self, iteration: int) -> bool:
        if not self._every:
            self._read()
        every = next((every for begin, every in reversed(self._every) if begin <= iteration), 0)
        if every == 0:
            return False
        period, place = divmod(iteration, every)
        return place == 0 or place == self._drawn_place(period, every)

    def takes(self, iteration: int) -> bool:
        if iteration != self._latest:
            self._latest = iteration
            self._takes_latest = not self._is_over and self.is_due(iteration) and self._may_record()
        return self._takes_latest

    def is_over(self, iteration: int) -> bool:
        return self._is_over

    def is_light(self, iteration: int) -> bool:
        return False

    def left_from(self, iteration: int) -> list[int]:
        return []

    def go_on_to(self, iteration: int) -> bool:
        return False

    def further(self) -> list[int]:
        return []

    def _drawn_place(self, period: int, every: int) -> int | None:
        digest = hashlib.blake2b(f"{self._seed}:{period}".encode(), digest_size=8).digest()
        drawn, place = divmod(int.from_bytes(digest, "little"), every)
        return place if drawn % _CHANCE == 0 else None

    def _may_record(self) -> bool:
        self._is_over = not os.path.exists(os.path.join(self._directory, "watching"))
        if self._is_over:
            return False
        self._read()
        waiting = [name for name in os.listdir(self._directory) if name.startswith("iteration-") and "." not in name]
        return len(waiting) < _MOST_WAITING

    def _read(self) -> None:
        """The file is replaced as a whole, and always there while the job is watched."""
        try:
            with open(os.path.join(self._directory, "schedule.json"), encoding="utf-8") as file:
                self._every = [(begin, every) for begin, every in json.load(file)]
        except OSError:
            self._is_over = True


def schedule_of(config: Config) -> Schedule:
    if config.watch_seed is None:
        return Listed(config.iterations, config.then)
    return Watched(config.directory, config.watch_seed)
