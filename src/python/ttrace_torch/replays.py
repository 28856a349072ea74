"""The recorded iterations once more, in the same launch of the program: perturbed, and as they were. So a program that
takes minutes to start is started once for its reference and the runs that a tolerance is estimated from.

Where the program goes on to an iteration that nobody asked for, everything that it computes from is put back to what it
was before the first (program_state.py), its data loaders give what they gave (loaded_data.py), and another recorder, in
the place of the one that has ended, records what it does as iteration 0 of another trace. That is begun only where the
model is given the very bits that it was given first. The last one is not perturbed: where it has the bits of the first,
nothing that was not put back, such as a counter of the program, has made a difference so far. That is for `ttrace run`
to compare. Afterwards the program goes on from where it had come to.

Nothing here waits for other ranks: each goes on with its iterations in any case."""

import atexit
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
        self._collector: Collector | None = None  # of what is recorded now
        self._rewound_for: Collector | None = None
        self._first: ProgramState | None = None  # before the first iteration
        self._latest: ProgramState | None = None  # where the program had come to
        self._given: list[torch.Tensor] = []  # to its first call of a model
        self._data = LoadedData(self._begins_next)
        self._data.install()

    def follow(self, collector: Collector, modules: "Modules") -> None:
        """They record from now on."""
        self._collector, modules.replays = collector, self

    def at_call(self, args: tuple, kwargs: dict) -> "Modules | None":
        """After the program's own call of a module has begun. Returns what is to record it from here, where a replay
        begins with it."""
        try:
            return self._at_call(args, kwargs)
        except Exception as error:  # the program goes on, and is launched again for what is lacking
            self._give_up(f"{type(error).__name__}: {error}")
            return None

    def _at_call(self, args: tuple, kwargs: dict) -> "Modules | None":
        collector = self._collector
        if collector is None:
            return None
        if collector.active:
            if self._first is None and collector.clock.running:
                self._first, self._given = ProgramState(), _tensors_of(args, kwargs, copied=True)
            return None
        if not self._left:
            self._end()
            return None
        if self._first is None or not collector.is_whole:
            raise NotRestorable("the recording ended before its iterations")
        if not self._data.is_whole or not _have_same_bits(self._given, _tensors_of(args, kwargs, copied=False)):
            raise NotRestorable("the model is given other data than in its first call")
        if self._latest is None:
            self._latest = ProgramState()
        return self._begin_next(collector)

    def _begin_next(self, before: Collector) -> "Modules":
        patches.take_back()
        processes.withdraw()
        self._first.put_back()
        of_this = self._left.pop(0)
        further = [each for each in before.schedule.further() if not before.schedule.is_light(each)]
        collector, modules = self._begin(
            replace(
                before.config,
                directory=of_this.directory,
                run_id=of_this.run_id,
                perturb=of_this.perturb,
                iterations=before.config.iterations | frozenset(further),
                may_go_on=False,
                replays=(),
            )
        )
        self.follow(collector, modules)
        os.register_at_fork(after_in_child=collector.after_fork)
        atexit.register(collector.at_exit)
        return modules

    def _begins_next(self) -> bool:
        """Whether all optimizers have stepped in the last recorded iteration: once for each recording."""
        collector = self._collector
        if not self._left or collector is None or collector is self._rewound_for or not collector.active:
            return False
        clock = collector.clock
        is_last = collector.schedule.is_over(clock.iteration + 1)
        if not (clock.stepped and is_last) or collector.is_waiting_for_steps():
            return False
        self._rewound_for = collector
        return True

    def _end(self) -> None:
        self._data.end()
        if self._latest is not None:
            self._latest.put_back()
        self._collector = self._first = self._latest = None
        self._given = []

    def _give_up(self, why: str) -> None:
        if self._left:
            problems.problem(self._left[0].directory, rank_and_world_size()[0], why)
        self._left = []
        self._data.end()
        self._collector = self._first = self._latest = None


def _tensors_of(args: tuple, kwargs: dict, copied: bool) -> list[torch.Tensor]:
    tensors = [tensor.detach() for _, tensor in inputs_of(args, kwargs)]
    return [tensor.clone() for tensor in tensors] if copied else tensors


def _have_same_bits(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )
