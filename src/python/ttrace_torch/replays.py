"""The recorded iterations once more, in the same launch of the program: perturbed, and as they were. So a program that
takes minutes to start is started once for its reference and the runs that a tolerance is estimated from.

Where the program goes on to an iteration that nobody asked for, everything that it computes from is put back to what it
was before the first (program_state.py), its data loaders give what they gave (loaded_data.py), and another recorder, in
the place of the one that has ended, records what it does as iteration 0 of another trace. That begins where the program
asks a loader for the iteration's first batch, or without one with its first call of a model, and ends at once unless
the model is then given the very bits that it was given first. The last one is not perturbed: where it has the bits of
the first, nothing that was not put back, such as a counter of the program, has made a difference so far. That is for
`ttrace run` to compare. Afterwards the program goes on from where it had come to.

Nothing here waits for other ranks: each goes on with its iterations in any case."""

import atexit
import contextlib
import os
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
        self._is_to_compare = False  # what it is given in the first call of a replay
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
        if collector is None or (collector.active and not collector.clock.running):
            return None
        if collector.active:
            if self._first is None:
                self._first, self._given = ProgramState(), _tensors_of(args, kwargs, copied=True)
            elif self._is_to_compare:
                self._is_to_compare = False
                self._require_same_data(args, kwargs)
            return None
        if not self._left:
            self._end()
            return None
        self._require_same_data(args, kwargs)
        return self._begin_next(collector)

    def _begin_at_fetch(self) -> "Modules | None":
        collector = self._collector
        clock = collector.clock
        is_last = collector.schedule.is_over(clock.iteration + 1)
        if not (collector.active and clock.stepped and is_last) or collector.is_waiting_for_steps():
            return None
        collector.safely(collector.finish_iteration, True)
        if collector.active:  # some of it is still to be read
            return None
        if not self._left:
            self._end()
            return None
        modules = self._begin_next(collector)
        self._is_to_compare = True
        return modules

    def _require_same_data(self, args: tuple, kwargs: dict) -> None:
        if not self._data.is_whole or not _have_same_bits(self._given, _tensors_of(args, kwargs, copied=False)):
            raise NotRestorable("the model is given other data than in its first call")

    def _begin_next(self, before: Collector) -> "Modules":
        if self._first is None or not before.is_whole:
            raise NotRestorable("the recording ended before its iterations")
        if self._latest is None:
            self._latest = ProgramState()
        patches.take_back()
        processes.withdraw()
        self._first.put_back()
        replay = self._left.pop(0)
        further = [each for each in before.schedule.further() if not before.schedule.is_light(each)]
        collector, modules = self._begin(
            replace(
                before.config,
                directory=replay.directory,
                run_id=replay.run_id,
                perturb=replay.perturb,
                iterations=before.config.iterations | frozenset(further),
                may_go_on=False,
                replays=(),
            )
        )
        self.follow(collector, modules)
        os.register_at_fork(after_in_child=collector.after_fork)
        atexit.register(collector.at_exit)
        return modules

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
