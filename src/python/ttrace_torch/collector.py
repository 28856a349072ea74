"""The collector of one process: its life, and the one way in for everything that PyTorch calls.

Whatever happens in here, the training program goes on as if nothing had: `safely` turns every failure into one line
on stderr, after which nothing more is recorded."""

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

import torch

from . import problems, processes
from .clock import Chunk, Clock
from .config import Config
from .configurations import Configurations
from .coordinates import rank_and_world_size
from .draws import Draws
from .library import Kind, Status, TensorId, TraceError
from .not_seen import NotSeen
from .optimizer_steps import OptimizerSteps
from .problems import listed
from .rank_file import RankFile
from .rehearsals import Rehearsals
from .schedule import LIGHT, schedule_of
from .selection import Selection
from .side_stream import OutOfDeviceMemory
from .sources import Sources
from .tensors import NotTraceable
from .threads import Threads
from .zero_gradients import ZeroGradients

# gloo's threads drop what they hold of Python after a collective, for which they need the interpreter's lock. One that
# does so while the interpreter ends aborts the process ("terminate called without an active exception", PyTorch 2.13).
_SECONDS_OF_GLOO = 0.05


class Collector:
    def __init__(self, config: Config, announces: bool = True):
        """`announces`: what this process starts is told that it is recorded."""
        self.config = config
        # What the program calls without gradients is recorded, and nothing else.
        self.no_grad = config.choice is not None and config.choice.no_grad
        self._announces = announces
        self.schedule = schedule_of(config)
        self.clock = Clock()
        self.threads = Threads()
        self._lock = threading.RLock()  # several threads may call modules
        self._recorded_process = processes.recorded_above(config.run_id)  # None: this one may be
        self.active = self._recorded_process is None
        self.file: RankFile | None = None  # opened with the first tensor, of the run or of an iteration
        self._file_of_parent: RankFile | None = None
        self._is_announced = False
        self._not_seen = NotSeen()
        self._rehearsals = Rehearsals()
        self._selection = Selection(config.choice, self._not_seen) if config.choice else None
        self.optimizer_steps = OptimizerSteps()
        self.kept: set[str] = set()  # titles of what the program keeps beside its models (buffers.py, weight_copies.py)
        self.zero_gradients = ZeroGradients() if config.may_go_on else None
        self.is_whole = False  # the file was closed, and with the mark of a whole trace
        self.sources = Sources(config.source_root, config.provenance.get("directory", ""))
        self.configurations = Configurations()
        self.draws = Draws()
        self.seconds = 0.0  # spent in here
        self.on_first_model: list[Callable[[], None]] = []  # called once, when the program's first model runs
        self.on_microbatch: list[Callable[[Chunk], None]] = []  # called before each of a chunk, recorded or not
        self.on_first_call: list[Callable[[Chunk], None]] = []  # before that of a chunk in each recorded iteration
        self.on_iteration_end: list[Callable[[], None]] = []  # called after the last tensor of each is recorded
        self.goes_on = True  # the program; false once it has ended
        self.on_call_without_grad: list[Callable[[torch.nn.Module], None]] = []  # of a model, by the program itself
        self.on_iteration_left: list[Callable[[], None]] = []  # called before the next one begins, or the program ends
        # Set by optimizers.py: whether an iteration goes on after a step; at the end of one with a step, and of one
        # without.
        self.awaits_steps: Callable[[], bool] = lambda: False
        self.is_waiting_for_steps: Callable[[], bool] = lambda: False  # the same, and changes nothing
        # Set by own_steps.py: whether the program has changed its parameters since its last step, without an optimizer.
        self.has_stepped_itself: Callable[[], bool] = lambda: False
        self.evaluates_otherwise: Callable[[], bool] = lambda: False
        self.record_params_after: Callable[[], None] = lambda: None
        self.record_gradients_left: Callable[[], None] = lambda: None
        # Set by late_reads.py: whether some of an iteration that is over is still to be read, and reads it.
        self.has_late_reads: Callable[[], bool] = lambda: False
        self.finish_late_reads: Callable[[], None] = lambda: None

    # The way in.

    def safely(self, function: Callable, *args: Any) -> Any:
        """function(*args), or None where it fails, collecting is over, or this thread is left alone. Only what the
        program's own signal handlers raise goes on to the program."""
        if not self.active or self.threads.is_aside():
            return None
        with self._lock:
            if not self.active:  # another thread has ended it
                return None
            started, grad_enabled = time.perf_counter(), torch.is_grad_enabled()
            try:
                return function(*args)
            except TraceError as error:
                # A forked child shares its parent's recorder and must leave it alone; that is no problem.
                self.stop(None if error.status == Status.FORKED else str(error))
            except problems.CollectError as error:
                self.stop(str(error))
            except OutOfDeviceMemory as error:
                self.stop(f"the device has no memory left for copies of what is recorded ({_place_of(error)})")
            except BaseException as error:
                if not isinstance(error, Exception) or _is_of_signal_handler(error):
                    # It may have come between `no_grad` and the end of its block.
                    torch.set_grad_enabled(grad_enabled)
                    self.stop(f"a signal handler raised {type(error).__name__} while a tensor was recorded")
                    raise
                self.stop(f"internal error: {error!r} ({_place_of(error)})")
            finally:
                self.seconds += time.perf_counter() - started
        return None

    # Recording.

    def is_recorded(self) -> bool:
        """Whether the iteration at hand is."""
        return self.schedule.takes(self.clock.iteration)

    def open(self) -> RankFile:
        """This rank's file. Raises CollectError, TraceError."""
        if self.file is None:
            self.file = RankFile(self.config, self._directory())
        if not self._is_announced:
            self._is_announced = True
            if self._announces:
                processes.announce(self.config.run_id)
            _at_end_of_child_process(self.at_exit)
        return self.file

    def _directory(self) -> str:
        if not self.config.split:
            return self.config.directory
        directory = os.path.join(self.config.directory, f"iteration-{self.clock.iteration:06}")
        os.makedirs(directory, exist_ok=True)
        return directory

    def leave_worker_alone(self) -> bool:
        """Whether this process is a worker of a DataLoader, of which nothing is recorded."""
        if processes.loads_data():
            self.active, self._recorded_process = False, os.getppid()
        return not self.active

    def begin_chunk(self, chunk: Chunk) -> None:
        """Before `chunk` is first called in an iteration."""
        self.configurations.saw(chunk)
        self.sources.saw_model(chunk.root, f"model{chunk.number}" if chunk.number else "")
        self.open().describe_model(chunk.root)
        while self.on_first_model:
            self.on_first_model.pop(0)()

    def record(self, tensor_id: TensorId, tensor: torch.Tensor, *, module_class: str = "", mapping: str = "") -> None:
        """As RankFile.record, unless the tensor is to be left out; what is not traceable is a warning."""
        is_light = self.schedule.is_light(tensor_id.iteration)
        if is_light and tensor_id.kind not in LIGHT:
            return
        if self._selection is not None and self._selection.leaves_out(tensor_id):
            return
        try:
            sketch = is_light or (self._selection is not None and self._selection.is_sketched(tensor_id))
            self.open().record(tensor_id, tensor, module_class=module_class, mapping=mapping, sketch=sketch)
        except NotTraceable as error:
            self.warn(f"not traceable: '{tensor_id.name}' is {error}")
            self.not_seen(str(error), (tensor_id.kind,), tensor_id.chunk, tensors=[tensor_id.name])

    def not_seen(
        self,
        reason: str,
        kinds: tuple[Kind, ...],
        chunk: int,
        *,
        tensors: Iterable[str] = (),
        modules: Iterable[str] = (),
    ) -> None:
        """The trace says, in `reason`, why it lacks tensors of this iteration: those called `tensors`, and all of the
        calls of `modules`."""
        if self.is_recorded() and not (self.schedule.is_light(self.clock.iteration) and LIGHT.isdisjoint(kinds)):
            self._not_seen.add(reason, kinds, self.clock.iteration, chunk, tensors=tensors, modules=modules)

    # Iterations.

    def is_wanted(self) -> bool:
        """Whether what the program calls just now is of the sort that is recorded: with gradients, or without."""
        return torch.is_grad_enabled() != self.no_grad

    def before_outermost_call(self, is_wanted: bool) -> None:
        """Before the program itself calls any module. After the steps of an iteration, the parameters are now as the
        next one sees them."""
        if self.clock.running and self.has_stepped_itself():
            self.clock.step()
        is_read_later = not is_wanted and self.evaluates_otherwise()
        if self.clock.stepped and not self.awaits_steps() and not is_read_later:
            self.finish_iteration(is_wanted)

    def finish_iteration(self, begin_next: bool) -> None:
        """`begin_next` is false where the program may yet do more in this iteration: it evaluates the model."""
        if self.is_recorded() and not self.clock.params_read:
            self.clock.params_read = True
            self.record_params_after()
        if not begin_next:
            return
        if self.is_recorded():
            for act in self.on_iteration_left:
                act()
        for check in self.on_iteration_end:
            check()
        if self.is_recorded():
            self._rehearsals.find(self.clock)
        if self.config.split and self.is_recorded():
            self._close_file(complete=True)
        elif self.file is not None and self.is_recorded():
            self.file.finish_transfers()
        if self.zero_gradients is not None and self.goes_on:
            self._go_on_behind_zeros(self.zero_gradients.families())
        self.clock.next_iteration()
        self.end_where_over()

    def end_where_over(self) -> None:
        if self.schedule.is_over(self.clock.iteration) and not self.has_late_reads():
            self.close(complete=True)

    def _go_on_behind_zeros(self, families: list[str]) -> None:
        """At the end of an iteration, where those of parameters have had no gradients but zeros so far."""
        next_iteration = self.clock.iteration + 1
        if families and self.schedule.go_on_to(next_iteration):
            self.warn(
                f"recording goes on to iteration {next_iteration}: the gradients of {listed(families)} are zero so far"
            )

    # The end.

    def close(self, complete: bool) -> None:
        self.active = False
        if self._is_announced:
            self._warn_of_selection()
        self._close_file(complete)

    def _close_file(self, complete: bool) -> None:
        file, self.file = self.file, None
        if file is None:
            return
        said = {
            "not_seen": self._not_seen.as_list(),
            "rehearsals": self._rehearsals.as_document(),
            "optimizer_steps": self.optimizer_steps.as_document(),
            "sources": self.sources.as_document(),
            "configurations": self.configurations.as_document(),
            "draws": self.draws.as_document(),
            "kept": {"titles": sorted(self.kept)},  # none is a statement, too
        }
        further = self.schedule.further()
        if further:
            asked, finished = self.config.iterations, [each for each in further if each < self.clock.iteration]
            light = [each for each in finished if self.schedule.is_light(each)]
            said["further"] = {"asked": sorted(asked), "finished": finished, "light": light}
        file.close(complete, self.seconds, said)
        self.is_whole = complete
        if self.config.split:  # the next iteration's file says nothing of this one
            self.optimizer_steps.clear()
            self._not_seen.clear()
            self.draws.clear()
            self._rehearsals.clear()

    def _warn_of_selection(self) -> None:
        for pattern in self._selection.unused() if self._selection is not None else ():
            self.warn(
                f"'{pattern}' fits no module and no parameter that was seen; expected a name, what follows one of "
                "its dots, or a glob"
            )
        if self._not_seen.is_cut:
            self.warn("more is left out than a trace can name; a check will call some of it missing")

    def stop(self, problem: str | None) -> None:
        """Records nothing more. What was recorded stays, without the mark of a whole trace."""
        if problem:
            self.report(problems.problem, problem)
        with contextlib.suppress(Exception):  # the user was told already why
            self.close(complete=False)

    def warn(self, text: str) -> None:
        self.report(problems.warning, text)

    def report(self, tell: Callable[[str, int, str], None], text: str) -> None:
        rank = self.file.position.rank if self.file else rank_and_world_size()[0]
        tell(self.config.directory, rank, text)

    def after_fork(self) -> None:
        """In a forked child: an open file is the parent's."""
        self._lock = threading.RLock()  # a thread of the parent may have held it
        self.threads = Threads()
        self._recorded_process = processes.recorded_above(self.config.run_id)
        if self._recorded_process is not None:
            # The parent's file may hold memory of a device, which only the parent can give back.
            self._file_of_parent, self.active, self.file = self.file, False, None

    def on_optimizer_step(self) -> None:
        """Of any optimizer of PyTorch's in this process, recorded or not."""
        if self._recorded_process is not None:
            self.report(
                problems.problem,
                f"{processes.this_process()} trains, too, and is not recorded: it was started by process "
                f"{self._recorded_process}, which is; expected one process per rank",
            )
            self._recorded_process = None

    def end_block(self) -> None:
        """Of the program, which was recorded by itself (block.py): all that ran in it counts."""
        if self.file is None:
            raise problems.CollectError(
                "nothing was recorded; expected a call of a torch.nn.Module with gradients enabled"
            )
        self.goes_on = False
        self.finish_late_reads()
        if self.clock.stepped:
            self.finish_iteration(begin_next=True)
        else:
            self.record_gradients_left()
            for check in self.on_iteration_end:
                check()
        self.close(complete=True)

    def at_exit(self) -> None:
        self.safely(self._finish)
        if rank_and_world_size()[1] > 1:
            time.sleep(_SECONDS_OF_GLOO)

    def _finish(self) -> None:
        exception = sys.exc_info()[1]  # set where multiprocessing ends a child whose target raised
        crashed = getattr(sys, "last_value", None) is not None or (
            exception is not None and not (isinstance(exception, SystemExit) and not exception.code)
        )
        if crashed:
            self.close(complete=False)
            return
        if self.clock.running and self.has_stepped_itself():
            self.clock.step()
        if self.clock.running and self.no_grad:
            self.clock.stepped = True
        elif self.clock.running and not self.clock.ever_stepped and self.is_recorded():
            self.warn("no optimizer step was seen: all that was recorded counts as iteration 0")
            self.clock.stepped = True
        self.goes_on = False
        self.finish_late_reads()
        if self.clock.stepped:
            self.finish_iteration(begin_next=True)
        reached = self.clock.iteration  # iterations before this one are finished
        unfinished = self.schedule.left_from(reached)
        if not self.active or not (self.file or self.clock.chunks):
            return
        if unfinished:
            text = ", ".join(map(str, unfinished))
            what = f"iterations asked for and not reached: {text}; the program ended after {reached}"
            if not self.clock.chunks:
                what += (
                    ": no module with parameters was called with gradients; expected calls like `model(x)`, since "
                    "`model.forward(x)`, and functions with parameters of no module, are not seen"
                )
            self.stop(what)
        else:
            self.close(complete=True)


def _is_of_signal_handler(error: BaseException) -> bool:
    """Whether it comes from a handler that the program has set: Python runs one wherever the main thread is."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {_code_of(handler) for handler in handlers if callable(handler)} - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


def _code_of(function: Any) -> CodeType | None:
    """None where it is not written in Python."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__code__"):
        function = getattr(function, "__func__", type(function).__call__)
    return getattr(function, "__code__", None)


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
