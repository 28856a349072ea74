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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from . import patches
from .clock import Clock
from .collector import Collector
from .living import instances_of
from .problems import listed
from .step_facts import class_name
from .tensors import local_part, named_parameters

_MOST_STEPS = 10  # of a discriminator for one of its generator's, programs take 1 to 5


@dataclass
class _Turn:
    optimizer: "weakref.ref[Optimizer]"
    number: int  # in the order in which they were made
    class_name: str
    groups: list[dict[str, Any]]  # its param_groups, to be looked at when the program drops it
    since: int  # the first iteration that waits for it
    wants: bool  # it has had parameters of modules that want gradients
    is_of_before: bool = False  # made before the recording, which is of a part of the program: it need not step there
    is_left_alone: bool = False
    is_aside: bool = False  # stepped in a thread of which nothing is recorded
    is_named: bool = False
    is_taken: bool = False  # in this iteration
    was_taken: bool = False  # in one before
    steps: int = 0  # in this iteration, without those that overflow has forbidden
    in_backward: bool = False  # it was stepped there
    collected_in: int = -1  # the last iteration in which garbage was collected before it was waited for


@dataclass(frozen=True)
class _Ended:
    iteration: int  # in which the program dropped it
    number: int
    class_name: str
    groups: "list[list[weakref.ref[torch.Tensor]]]"


@dataclass(frozen=True)
class _Unstepped:
    turn: _Turn
    class_name: str
    parameters: int
    description: str


class Turns:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._turns: dict[int, _Turn] = {}  # by id of the optimizer, in the order in which they were made
        self._is_prolonged = False  # this iteration, over a call that followed a step
        self._dropped: list[_Unstepped] = []  # in this iteration, by the program
        self._made = 0
        self._ended: list[_Ended] = []

    def install(self) -> None:
        """Optimizers that the program has made before are those that Python knows of."""
        for each in instances_of(Optimizer):
            if hasattr(type(each).step, "hooked"):
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
        since = clock.iteration + clock.stepped
        reference = weakref.ref(optimizer, lambda _: self._collector.safely(self._end, turn))
        wants = _wants_gradients(optimizer)
        turn = _Turn(reference, self._made, class_name(optimizer), optimizer.param_groups, since, wants)
        self._made += 1
        self._turns.pop(id(optimizer), None)  # of one that is no more
        self._turns[id(optimizer)] = turn
        return turn

    def _of(self, optimizer: Optimizer) -> _Turn:
        turn = self._turns.get(id(optimizer))
        return turn if turn is not None and turn.optimizer() is optimizer else self._add(optimizer)

    def _end(self, turn: _Turn) -> None:
        """The program has dropped the optimizer, as at the end of its `main()`. It is one to name where it never
        stepped, and no other one has its parameters."""
        clock, held = self._collector.clock, _parameters(turn.groups)
        self._ended.append(_Ended(clock.iteration, turn.number, turn.class_name, _weakly(turn.groups)))
        turn.groups = []
        is_due = clock.running and turn.since <= clock.iteration and not (turn.is_taken or turn.was_taken)
        if not is_due or turn.is_of_before or turn.is_aside or not _want_gradients(held.values()):
            return
        if not held.keys() <= {key for each in self._living() for key in _held(each.optimizer())}:
            self._dropped.append(_Unstepped(turn, turn.class_name, len(held), _describe(turn.class_name, held, clock)))

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

    def are_to_come(self) -> bool:
        """Whether `await_steps` would say so, but for optimizers that are about to be left alone."""
        return any(not turn.is_left_alone for turn in self._untaken())

    def _untaken(self) -> list[_Turn]:
        """Of optimizers that are to step in this iteration, and have not."""
        if len(self._turns) < 2:
            return []
        turns, iteration = self._living(), self._collector.clock.iteration
        waiting = [each for each in turns if not (each.is_taken or each.is_aside) and each.since <= iteration]
        if not waiting:
            return []
        taken = {key for each in turns if each.is_taken for key in _held(each.optimizer())}
        for turn in waiting:
            turn.wants = turn.wants or _wants_gradients(turn.optimizer())
        taken |= self._of_models_stepped_in_backward(turns)
        untaken = [each for each in waiting if each.wants and not _held(each.optimizer()).keys() <= taken]
        return self._untaken() if self._collect_garbage(untaken) else untaken

    def _collect_garbage(self, waited_for: list[_Turn]) -> bool:
        """An optimizer that the program has dropped can be in a cycle: frames of its making, which an exception in an
        import of torch's has kept. Once for those that were made before the first iteration; others come and go.
        Returns whether there were some to collect for."""
        iteration = self._collector.clock.iteration
        new = [turn for turn in waited_for if turn.collected_in < (iteration if turn.since else 0)]
        for turn in new:
            turn.collected_in = iteration
        if new:
            gc.collect()
        return bool(new)

    def _of_models_stepped_in_backward(self, turns: Iterable[_Turn]) -> set[int]:
        stepped = {key for each in turns if each.in_backward for key in _held(each.optimizer())}
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
        held = [_held(turn.optimizer()).keys() for turn in self._living()]
        if not any(keys & given for keys in held):
            return set()
        return set().union(*(keys for keys in held if stepping or not keys & given)) - given

    def optimizers(self) -> list[Optimizer]:
        """Those of the program, as they were made."""
        return [turn.optimizer() for turn in self._living()]

    def held(self) -> list[tuple[str, list[list[torch.Tensor]]]]:
        """What the optimizers of this iteration have, in the order of their making, also those that are no more,
        as at the end of a `main()`: the class, and the parameters by group. Of one that steps some of its parameters by
        another optimizer that it keeps, as fairscale's OSS those of its rank, the others are its own where it has a
        state of them."""
        found = [(each.number, each.class_name, _resolved(each.groups)) for each in self._ended]
        for turn in self._living():
            optimizer = turn.optimizer()
            groups = [list(group["params"]) for group in optimizer.param_groups]
            if _steps_by_another(optimizer):
                groups = [[each for each in group if each in optimizer.state] for group in groups]
            found.append((turn.number, turn.class_name, groups))
        return [(of_class, groups) for _, of_class, groups in sorted(found, key=lambda each: each[0])]

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
                f"{_describe(turn.class_name, _held(turn.optimizer()), clock)} {_times(turn.steps)}"
                for turn in self._living()
                if turn.steps
            ]
            self._collector.warn(f"an iteration goes on until each optimizer has stepped: {'; '.join(said)}")
        self._is_prolonged = False
        for turn in self._living():
            turn.was_taken = turn.was_taken or turn.is_taken
            turn.is_taken, turn.steps, turn.in_backward = False, 0, False
            turn.groups = turn.optimizer().param_groups  # the program may have put others in their place
        self._dropped = []
        self._ended = [each for each in self._ended if each.iteration == clock.iteration]

    def _say_unstepped(self) -> None:
        collector = self._collector
        for turn in self._living():
            if turn.is_taken:
                collector.optimizer_steps.has_stepped(id(turn))
        most = max((turn.steps for turn in self._turns.values()), default=0)
        for each in [*self._unstepped(), *self._dropped]:
            collector.optimizer_steps.add_unstepped(id(each.turn), each.class_name, each.parameters)
            if not each.turn.is_named:
                each.turn.is_named = True
                collector.warn(
                    f"not recorded: a step of {each.description}, which took none while another optimizer stepped "
                    f"{_times(most)}; expected that each steps, or --iterations in which it does"
                )

    def _unstepped(self) -> Iterator[_Unstepped]:
        for turn in self._untaken():
            if not turn.is_of_before:
                held = _held(turn.optimizer())
                described = _describe(turn.class_name, held, self._collector.clock)
                yield _Unstepped(turn, turn.class_name, len(held), described)


def _parameters(groups: Iterable[dict[str, Any]]) -> dict[int, torch.Tensor]:
    """By id."""
    return {id(parameter): parameter for group in groups for parameter in group["params"]}


def _weakly(groups: Iterable[dict[str, Any]]) -> "list[list[weakref.ref[torch.Tensor]]]":
    return [[weakref.ref(parameter) for parameter in group["params"]] for group in groups]


def _resolved(groups: "list[list[weakref.ref[torch.Tensor]]]") -> list[list[torch.Tensor]]:
    return [[parameter for each in group if (parameter := each()) is not None] for group in groups]


def _held(optimizer: Optimizer) -> dict[int, torch.Tensor]:
    return _parameters(optimizer.param_groups)


def _steps_by_another(optimizer: Optimizer) -> bool:
    """Whether it keeps an optimizer of some of its own parameters, or all."""
    kept = [value for value in vars(optimizer).values() if isinstance(value, Optimizer)]
    return any(_held(each).keys() <= _held(optimizer).keys() for each in kept)


def _places(optimizer: Optimizer) -> set[int]:
    """Of its gradients."""
    gradients = (parameter.grad for parameter in _held(optimizer).values())
    return {local_part(gradient).data_ptr() for gradient in gradients if gradient is not None}


def _wants_gradients(optimizer: Optimizer) -> bool:
    """Whether it has parameters of modules that do, or has stepped."""
    return bool(optimizer.state) or _want_gradients(_held(optimizer).values())


def _want_gradients(parameters: Iterable[torch.Tensor]) -> bool:
    return any(isinstance(each, torch.nn.Parameter) and each.requires_grad for each in parameters)


def _describe(of_class: str, held: dict[int, torch.Tensor], clock: Clock) -> str:
    names = [name for chunk in clock.chunks.values() for name, parameter in chunk.parameters() if id(parameter) in held]
    known = f" ({listed(names)})" if names else ""
    return f"{of_class} of {len(held)} parameter{'s' if len(held) != 1 else ''}{known}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
