"""Whose turn to step has not come yet: an iteration is what every optimizer of the program does once.

Programs with several models have an optimizer for each, and these step in turn, each after forwards and backwards of
its own: the discriminator of a GAN, then the generator. So an iteration goes on over such calls until each optimizer
has stepped that has a parameter of a module which wants a gradient, or did when the optimizer was made (GANs freeze the
one model while they train the other). One that the program makes after a step is for the next iteration: inner loops
make one for each task. Not waited for are

    wrappers             whose parameters others have, too, that have stepped; so have optimizers that were made anew
    those in a backward  which steps each parameter as its gradient comes: of a model where it stepped some, the others
                         got no gradient
    those left alone     that have not stepped while another one did more than `_MOST_STEPS` times. They are named, and
                         not waited for again.

Where there is one optimizer, as in most programs, nothing is looked at."""

import functools
import gc
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from . import patches
from .clock import Clock
from .collector import Collector
from .problems import listed
from .step_facts import class_name
from .tensors import local_part, named_parameters

_MOST_STEPS = 10  # of a discriminator for one of its generator's, programs take 1 to 5


@dataclass
class _Turn:
    optimizer: "weakref.ref[Optimizer]"
    since: int  # the first iteration that waits for it
    wants: bool  # it has had parameters of modules that want gradients
    is_of_before: bool = False  # made before the recording, which is of a part of the program: it need not step there
    is_left_alone: bool = False
    is_aside: bool = False  # stepped in a thread of which nothing is recorded
    is_named: bool = False
    is_taken: bool = False  # in this iteration
    steps: int = 0  # in this iteration, without those that overflow has forbidden
    in_backward: bool = False  # it was stepped there


class Turns:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._turns: dict[int, _Turn] = {}  # by id of the optimizer, in the order in which they were made
        self._is_prolonged = False  # this iteration, over a call that followed a step

    def install(self) -> None:
        """Optimizers that the program has made before are those that Python knows of."""
        for each in gc.get_objects():
            if issubclass(type(each), Optimizer) and hasattr(type(each).step, "hooked"):
                self._add(each).is_of_before = True
        patches.replace(Optimizer, "__init__", self._observed(Optimizer.__init__))
        self._collector.on_iteration_end.append(self._finish)

    def _observed(self, make: Callable) -> Callable:
        collector = self._collector

        @functools.wraps(make)
        def patched(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            collector.safely(self._add, optimizer)

        return patched

    def _add(self, optimizer: Optimizer) -> _Turn:
        clock = self._collector.clock
        turn = _Turn(weakref.ref(optimizer), clock.iteration + clock.stepped, _wants_gradients(optimizer))
        self._turns.pop(id(optimizer), None)  # of one that is no more
        self._turns[id(optimizer)] = turn
        return turn

    def _of(self, optimizer: Optimizer) -> _Turn:
        turn = self._turns.get(id(optimizer))
        return turn if turn is not None and turn.optimizer() is optimizer else self._add(optimizer)

    # Turns that are taken.

    def step(self, optimizer: Optimizer) -> None:
        turn = self._of(optimizer)
        if self._collector.clock.running:  # else it initialises its state
            turn.is_taken, turn.steps = True, turn.steps + 1
            turn.in_backward = torch._C._current_graph_task_id() != -1

    def skip(self, optimizer: Any) -> None:
        """Its turn has come; whether it has stepped is not said."""
        if isinstance(optimizer, Optimizer):
            self._of(optimizer).is_taken |= self._collector.clock.running

    def skip_with(self, gradients: Iterable[torch.Tensor]) -> None:
        """The turn of those has come that step with some of `gradients`; of all, where none is known to."""
        turns = self._living()
        if len(turns) > 1:
            places = {local_part(gradient).data_ptr() for gradient in gradients}
            turns = [each for each in turns if _places(each.optimizer()) & places] or turns
        for turn in turns:
            turn.is_taken |= self._collector.clock.running

    def leave_alone(self, optimizer: Optimizer) -> None:
        self._of(optimizer).is_aside = True

    # Turns to come.

    def await_steps(self) -> bool:
        """Before a call of a model that comes after a step: whether the iteration goes on."""
        awaited = [turn for turn in self._untaken() if not turn.is_left_alone]
        if awaited and max(turn.steps for turn in self._turns.values()) > _MOST_STEPS:
            for turn in awaited:
                turn.is_left_alone = True
            return False
        self._is_prolonged = self._is_prolonged or bool(awaited)
        return bool(awaited)

    def _untaken(self) -> list[_Turn]:
        """Of optimizers that are to step in this iteration, and have not."""
        if len(self._turns) < 2:
            return []
        turns, iteration = self._living(), self._collector.clock.iteration
        waiting = [each for each in turns if not (each.is_taken or each.is_aside) and each.since <= iteration]
        if not waiting:
            return []
        taken = {key for each in turns if each.is_taken for key in _parameters(each.optimizer())}
        for turn in waiting:
            turn.wants = turn.wants or _wants_gradients(turn.optimizer())
        taken |= self._of_models_stepped_in_backward(turns)
        return [each for each in waiting if each.wants and not _parameters(each.optimizer()).keys() <= taken]

    def _of_models_stepped_in_backward(self, turns: Iterable[_Turn]) -> set[int]:
        stepped = {key for each in turns if each.in_backward for key in _parameters(each.optimizer())}
        models: set[int] = set()
        for chunk in self._collector.clock.chunks.values() if stepped else ():
            of_model = {id(parameter) for _, parameter in named_parameters(chunk.base)}
            models |= of_model if of_model & stepped else set()
        return models

    def of_others(self, given: set[int], stepping: bool) -> set[int]:
        """Ids of parameters that other optimizers use than the one that is about to use `given`: all of its own where
        it is `stepping`, else some. Empty where no optimizer has any of those."""
        if len(self._turns) < 2:
            return set()
        held = [_parameters(turn.optimizer()).keys() for turn in self._living()]
        if not any(keys & given for keys in held):
            return set()
        return set().union(*(keys for keys in held if stepping or not keys & given)) - given

    def optimizers(self) -> list[Optimizer]:
        """Those of the program, as they were made."""
        return [turn.optimizer() for turn in self._living()]

    def _living(self) -> list[_Turn]:
        self._turns = {key: turn for key, turn in self._turns.items() if turn.optimizer() is not None}
        return list(self._turns.values())

    # What was decided.

    def _finish(self) -> None:
        """At the end of an iteration."""
        clock = self._collector.clock
        if clock.stepped and self._collector.is_recorded():
            self._say_unstepped()
        if self._is_prolonged and self._collector.is_recorded():
            said = [
                f"{_describe(turn.optimizer(), clock)} {_times(turn.steps)}" for turn in self._living() if turn.steps
            ]
            self._collector.warn(f"an iteration goes on until each optimizer has stepped: {'; '.join(said)}")
        self._is_prolonged = False
        for turn in self._living():
            turn.is_taken, turn.steps, turn.in_backward = False, 0, False

    def _say_unstepped(self) -> None:
        collector = self._collector
        for turn in self._living():
            if turn.is_taken:
                collector.optimizer_steps.has_stepped(id(turn))
        most = max((turn.steps for turn in self._turns.values()), default=0)
        for turn in self._untaken():
            optimizer = turn.optimizer()
            if turn.is_of_before:
                continue
            collector.optimizer_steps.add_unstepped(id(turn), class_name(optimizer), len(_parameters(optimizer)))
            if not turn.is_named:
                turn.is_named = True
                collector.warn(
                    f"not recorded: a step of {_describe(optimizer, collector.clock)}, which took none while another "
                    f"optimizer stepped {_times(most)}; expected that each steps, or --iterations in which it does"
                )


def _parameters(optimizer: Optimizer) -> dict[int, torch.Tensor]:
    """By id."""
    return {id(parameter): parameter for group in optimizer.param_groups for parameter in group["params"]}


def _places(optimizer: Optimizer) -> set[int]:
    """Of its gradients."""
    gradients = (parameter.grad for parameter in _parameters(optimizer).values())
    return {local_part(gradient).data_ptr() for gradient in gradients if gradient is not None}


def _wants_gradients(optimizer: Optimizer) -> bool:
    """Whether it has parameters of modules that do, or has stepped."""
    parameters = _parameters(optimizer).values()
    return bool(optimizer.state) or any(isinstance(p, torch.nn.Parameter) and p.requires_grad for p in parameters)


def _describe(optimizer: Optimizer, clock: Clock) -> str:
    held = _parameters(optimizer)
    names = [name for chunk in clock.chunks.values() for name, parameter in chunk.parameters() if id(parameter) in held]
    known = f" ({listed(names)})" if names else ""
    return f"{class_name(optimizer)} of {len(held)} parameter{'s' if len(held) != 1 else ''}{known}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
