"""What a program's data loaders give it in the recorded iterations, to be given once more: a tape of the batches of
each loader, with the state of the random streams behind each. While it is played, the loaders themselves wait.

A batch that is fetched when the optimizers of the last iteration have stepped belongs to the next. accelerate's loaders
fetch one ahead of what the program is given, so the tape is of what they give."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from .imports import after_import
from .program_state import RandomState

_MOST_BATCHES = 64  # of a loader, on its tape; of one that gives more, none
_LOADERS = {"accelerate.data_loader": ("DataLoaderShard", "DataLoaderDispatcher")}  # whose __iter__ is a generator


class LoadedData:
    def __init__(self, begins_next: Callable[[], bool]):
        """`begins_next`: whether what is fetched now is for the first iteration once more."""
        self._begins_next = begins_next
        self._tapes: dict[int, _Tape] = {}  # by id of what makes the loader's indices
        self._is_inside = False  # a loader that asks another one
        self._is_on = True

    def install(self) -> None:
        """For good: a replay begins within a call of a module, and `patches` are taken back before."""
        _BaseDataLoaderIter.__next__ = self._wrap_next(_BaseDataLoaderIter.__next__)
        for module, names in _LOADERS.items():
            after_import(module, functools.partial(self._wrap_loaders, names))

    def _wrap_loaders(self, names: tuple[str, ...], module: ModuleType) -> None:
        for loader in (getattr(module, name) for name in names if hasattr(module, name)):
            loader.__iter__ = self._wrap_generator(loader.__iter__)

    def _wrap_next(self, fetch: Callable) -> Callable:
        @functools.wraps(fetch)
        def patched(iterator: Any) -> Any:
            return self._next(iterator._index_sampler, functools.partial(fetch, iterator))

        return patched

    def _wrap_generator(self, iterate: Callable) -> Callable:
        @functools.wraps(iterate)
        def patched(loader: Any) -> Iterator[Any]:
            batches = iterate(loader)
            with contextlib.suppress(StopIteration):
                while True:
                    yield self._next(loader, functools.partial(next, batches))

        return patched

    def _next(self, loader: Any, fetch: Callable[[], Any]) -> Any:
        if self._is_inside or not self._is_on:
            return fetch()
        if self._begins_next():
            for tape in self._tapes.values():
                tape.is_played, tape.place = True, 0
        tape = self._tapes.setdefault(id(loader), _Tape(loader))
        if tape.is_played and tape.place < len(tape.batches):
            batch, streams = tape.batches[tape.place]
            tape.place += 1
            streams.put_back()
            return copy.deepcopy(batch)
        self._is_inside = True
        try:
            batch = fetch()
        finally:
            self._is_inside = False
        if tape.is_kept and not tape.is_played:
            tape.keep(batch)
        return batch

    def end(self) -> None:
        """The loaders go on by themselves, from where they were."""
        self._is_on = False
        self._tapes.clear()


class _Tape:
    def __init__(self, loader: Any):
        self.loader = loader  # kept alive: another one would have its id
        self.batches: list[tuple[Any, RandomState]] = []
        self.is_kept = True  # else the loader goes on by itself, as one whose batches are an evaluation's
        self.is_played, self.place = False, 0

    def keep(self, batch: Any) -> None:
        try:
            self.batches.append((copy.deepcopy(batch), RandomState()))
            self.is_kept = len(self.batches) <= _MOST_BATCHES
        except Exception:  # whatever a program's own class raises
            self.is_kept = False
        if not self.is_kept:
            self.batches.clear()
