"""The collector of one process: its life, and the one way in for everything that PyTorch calls.

Whatever happens in here, the training program goes on as if nothing had: `safely` turns every failure into one line
on stderr, after which nothing more is recorded."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from . import library, problems
from .clock import Clock, Microbatch
from .config import Config
from .coordinates import rank_and_world_size
from .rank_file import RankFile
from .tensors import NotTraceable


class Collector:
    def __init__(self, config: Config):
        self.config = config
        self.clock = Clock()
        self.active = True
        self.file: RankFile | None = None  # opened with the first tensor
        self.seconds = 0.0  # spent in here
        self.on_first_model: list = []  # called when the program's first model runs
        self.on_iteration_end: list = []  # called before the last tensors of the iteration are recorded
        self.record_params_after: Callable[[], None] = lambda: None

    # The way in.

    def safely(self, function: Callable, *args) -> Any:
        """function(*args), or None where it fails or collecting is over."""
        if not self.active:
            return None
        started = time.perf_counter()
        try:
            return function(*args)
        except library.TraceError as error:
            # A forked child shares its parent's recorder and must leave it alone; that is no problem.
            self.stop(None if error.status == library.FORKED else str(error))
        except problems.CollectError as error:
            self.stop(str(error))
        except Exception as error:
            self.stop(f"internal error: {error!r} ({_place_of(error)})")
        finally:
            self.seconds += time.perf_counter() - started
        return None

    # Recording.

    def is_recorded(self) -> bool:
        return self.clock.iteration in self.config.iterations

    def open(self) -> RankFile:
        if self.file is None:
            self.file = RankFile(self.config)
            _at_end_of_child_process(self.at_exit)
        return self.file

    def begin_model(self, model: torch.nn.Module) -> None:
        self.open().describe_model(model)
        while self.on_first_model:
            self.on_first_model.pop(0)()

    def record(
        self,
        microbatch: Microbatch,
        pass_: int,
        kind: int,
        name: str,
        module_class: str,
        tensor: torch.Tensor,
        mapping: str = "",
    ) -> None:
        """`mapping` as in RankFile.record."""
        self._record(
            microbatch.iteration, microbatch.number, microbatch.chunk, pass_, kind, name, module_class, tensor, mapping
        )

    def record_parameter(self, chunk: int, kind: int, name: str, tensor: torch.Tensor, mapping: str = "") -> None:
        """Of a kind that has no micro-batch; `name` may be a scalar's."""
        self._record(
            self.clock.iteration, library.NO_MICROBATCH, chunk, library.FORWARD, kind, name, "", tensor, mapping
        )

    def _record(
        self,
        iteration: int,
        microbatch: int,
        chunk: int,
        pass_: int,
        kind: int,
        name: str,
        module_class: str,
        tensor: torch.Tensor,
        mapping: str,
    ) -> None:
        try:
            self.open().record(iteration, microbatch, chunk, pass_, kind, name, module_class, tensor, mapping)
        except NotTraceable as error:
            self.warn(f"not traceable: '{name}' is {error}")

    # Iterations.

    def before_outermost_call(self, in_grad_mode: bool) -> None:
        """Any module called by the program itself: parameters are now as the next iteration sees them."""
        if self.clock.stepped:
            self.finish_iteration(in_grad_mode)

    def finish_iteration(self, begin_next: bool) -> None:
        if self.is_recorded() and not self.clock.params_read:
            self.clock.params_read = True
            self.record_params_after()
        if not begin_next:
            return
        for check in self.on_iteration_end:
            check()
        self.clock.next_iteration()
        if self.clock.iteration > max(self.config.iterations):
            self.close(complete=True)

    # The end.

    def close(self, complete: bool) -> None:
        self.active = False
        file, self.file = self.file, None
        if file is not None:
            file.close(complete, self.seconds)

    def stop(self, problem: str | None) -> None:
        """Records nothing more. What was recorded stays, without the mark of a whole trace."""
        if problem:
            self.report(problems.problem, problem)
        try:
            self.close(complete=False)
        except library.TraceError:
            pass  # told already why

    def warn(self, text: str) -> None:
        self.report(problems.warning, text)

    def report(self, tell: Callable, text: str) -> None:
        rank = self.file.place.rank if self.file else rank_and_world_size()[0]
        tell(self.config.directory, rank, text)

    def after_fork(self) -> None:
        """In a forked child: an open file is the parent's."""
        if self.file is not None:
            self.active, self.file = False, None

    def at_exit(self) -> None:
        self.safely(self._finish)

    def _finish(self) -> None:
        exception = sys.exc_info()[1]  # set where multiprocessing ends a child whose target raised
        crashed = getattr(sys, "last_value", None) is not None or (
            exception is not None and not (isinstance(exception, SystemExit) and not exception.code)
        )
        if crashed:
            self.close(complete=False)
            return
        if self.clock.running and not self.clock.ever_stepped and self.is_recorded():
            self.warn("no optimizer step was seen: all that was recorded counts as iteration 0")
            self.clock.stepped = True
        if self.clock.stepped:
            self.finish_iteration(begin_next=True)
        reached = self.clock.iteration  # iterations before this one are finished
        unfinished = sorted(iteration for iteration in self.config.iterations if iteration >= reached)
        if not self.active or not (self.file or self.clock.chunks):
            return
        if unfinished:
            text = ", ".join(map(str, unfinished))
            self.stop(f"iterations asked for and not reached: {text}; the program ended after {reached}")
        else:
            self.close(complete=True)


def _place_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "?"


def _at_end_of_child_process(finish: Callable[[], None]) -> None:
    """multiprocessing's children run its finalizers at their end; forked ones run no atexit function."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and sys.modules["multiprocessing.process"].parent_process() is not None:
        util.Finalize(None, finish, exitpriority=1)
