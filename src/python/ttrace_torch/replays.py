"""The recorded iterations once more, in the same launch of the program: perturbed, and as they were. So a program that
takes minutes to start is started once for its reference and the runs that a tolerance is estimated from.

Everything that the program computes from is put back to what it was before the first iteration (program_state.py), its
data loaders give what they gave (loaded_data.py), and another recorder records what it does as iteration 0 of another
trace. That begins where the program asks a loader for the first batch of an iteration, or without one with its first
call of a model, and ends at once unless the model is then given the very bits that it was given first. A recording
ends within an iteration, since much is read as late as the next begins; so one iteration between two is not recorded.

The last replay is not perturbed: where it has the bits of the first recording, nothing that was not put back, such as a
counter of the program, has made a difference so far. That is for `ttrace run` to compare. Afterwards the program goes
on from where it had come to.

Only of a program of one process: where one of several ranks could not be led back, its loader would end before those of
the others, and these would wait for it."""

import atexit
import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from . import patches, problems, processes
from .collector import Collector
from .config import Config
from .coordinates import rank_and_world_size
from .loaded_data import LoadedData
from .members import inputs_of
from .program_state import NotRestorable, ProgramState

if TYPE_CHECKING:
    from .modules import Modules


BEGUN = "begun"  # a file that is in the directory of the first replay where the program was led to it
_NEVER = 1 << 30  # the iteration that a pause would record


class Replays:
    def __init__(self, config: Config, begin: Callable[[Config], "tuple[Collector, Modules]"]):
        """`begin` puts another recorder into torch."""
        self._left = list(config.replays)
        for each in self._left:
            problems.will_raise(each.directory)  # that one could not be made is no problem of the user's
        self._begin = begin
        self._collector: Collector | None = None  # of what is recorded now; None: all is over
        self._first: ProgramState | None = None  # before the first iteration
        self._latest: ProgramState | None = None  # where the program had come to
        self._given: list[torch.Tensor] = []  # to its first call of a model
        self._thread = 0  # that made this call
        self._is_to_compare = False  # what it is given in the first call of a replay
        self._is_pause = False  # the iteration at hand is not recorded
        self._whole: frozenset[int] = frozenset()  # the iterations that were recorded, but for light ones
        self._data = LoadedData(self._before_fetch)
        self._data.install()

    def follow(self, collector: Collector, modules: "Modules") -> None:
        """They record from now on."""
        self._collector, modules.replays = collector, self

    # The ways in.

    def at_call(self, args: tuple, kwargs: dict) -> "Modules | None":
        """After the program's own call of a module has begun. Returns what is to record it from here, where a replay
        begins with it."""
        return self._safely(self._at_call, args, kwargs)

    def _before_fetch(self) -> bool:
        """Before the program is given a batch. Returns whether a replay begins with it."""
        return self._collector is not None and self._safely(self._begin_at_fetch) is not None

    def _safely(self, function: Callable, *args: Any) -> Any:
        """function(*args), or None where it fails: the program goes on, and is launched again for what is lacking."""
        try:
            return function(*args)
        except Exception as error:
            why = str(error) if isinstance(error, NotRestorable) else f"{type(error).__name__}: {error}"
            if self._left:
                problems.problem(self._left[0].directory, rank_and_world_size()[0], why)
            with contextlib.suppress(Exception):
                self._end()
            return None

    def _at_call(self, args: tuple, kwargs: dict) -> "Modules | None":
        collector = self._collector
        if collector is None:
            return None
        if not collector.active:
            return self._pause(collector)
        if self._is_pause:
            if collector.clock.iteration == 0:
                return None
            self._require_same_data(args, kwargs)
            return self._begin_next(collector)
        if self._first is None and collector.clock.running:
            if rank_and_world_size()[1] > 1:
                raise NotRestorable("the program has several ranks")
            self._first, self._given = ProgramState(), _tensors_of(args, kwargs, copied=True)
            self._thread = threading.get_ident()
        elif self._is_to_compare and collector.clock.running:
            self._is_to_compare = False
            self._require_same_data(args, kwargs)
        return None

    def _pause(self, before: Collector) -> "Modules | None":
        """Behind a recording, which has ended with this call: the iteration that begins with it is not recorded."""
        if self._first is None or not before.is_whole:
            raise NotRestorable("the recording ended before its iterations")
        if self._latest is None:
            self._latest = ProgramState()
        if not self._left:
            self._end()
            return None
        with contextlib.suppress(OSError), open(os.path.join(self._left[0].directory, BEGUN), "w", encoding="utf-8"):
            pass
        self._whole = frozenset(before.config.iterations) | {
            each for each in before.schedule.further() if not before.schedule.is_light(each)
        }
        return self._record(replace(before.config, iterations=frozenset((_NEVER,)), perturb=None))

    def _begin_at_fetch(self) -> "Modules | None":
        collector = self._collector
        is_over = self._is_pause and collector.clock.stepped and not collector.is_waiting_for_steps()
        if not is_over:
            return None
        if threading.get_ident() != self._thread:
            raise NotRestorable("another thread than that which trains fetches its batches")
        self._is_to_compare = True
        return self._begin_next(collector)

    def _begin_next(self, before: Collector) -> "Modules":
        self._first.put_back()
        replay = self._left.pop(0)
        config = replace(
            before.config,
            directory=replay.directory,
            run_id=replay.run_id,
            perturb=replay.perturb,
            iterations=self._whole,
        )
        modules = self._record(config)
        os.register_at_fork(after_in_child=self._collector.after_fork)
        atexit.register(self._collector.at_exit)
        return modules

    def _record(self, config: Config) -> "Modules":
        patches.take_back()
        processes.withdraw()
        self._is_pause = _NEVER in config.iterations
        collector, modules = self._begin(replace(config, may_go_on=False, replays=()))
        self.follow(collector, modules)
        return modules

    def _require_same_data(self, args: tuple, kwargs: dict) -> None:
        if not _have_same_bits(self._given, _tensors_of(args, kwargs, copied=False)):
            raise NotRestorable("the model is given other data than in its first call")

    def _end(self) -> None:
        """The program goes on from where it had come to."""
        collector, latest = self._collector, self._latest
        self._collector = self._first = self._latest = None
        self._left, self._given = [], []
        self._data.end()
        if latest is None:
            return
        if collector.active:
            collector.stop(None)
        latest.put_back()


def _tensors_of(args: tuple, kwargs: dict, copied: bool) -> list[torch.Tensor]:
    tensors = [tensor.detach() for _, tensor in inputs_of(args, kwargs)]
    return [tensor.clone() for tensor in tensors] if copied else tensors


def _have_same_bits(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )
