"""The steps of optimizers: with what options, how often, with what part of the main gradient, and from what state.

That is what a check needs to work out a step for itself (`OptimizerStep` in src/base/trace.h). Nothing is
looked at in an iteration that is not recorded.

An optimizer may be wrapped in another one, whose `step` calls that of the first: PyTorch's ZeroRedundancyOptimizer
does. The step is that of the inner one where it alone changed the masters, else the outer one's. What the inner one
lacks, another rank's has, and the values come from there: here it is in no optimizer."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from .collector import Collector
from .library import Kind
from .living import instances_of
from .masters import TrainedParameter, record_part
from .optimizer_steps import StepFacts
from .problems import listed
from .step_facts import (
    STATES,
    class_name,
    differing,
    fingerprint,
    gradient_of,
    is_flat_shard,
    options_of,
    part_of,
    step_counts,
    updates_itself,
)
from .step_gradients import clip_factors
from .tensors import dtype_name, has_plain_values, local_part

Key = tuple[int, str]  # chunk and name of a parameter
Options = tuple[tuple[str, float], ...]

MASTERS = "(masters)"  # kept by hand in the place of parameters, by their optimizer's group: no path of a module


@dataclass
class _Step:
    """Of one parameter."""

    facts: StepFacts  # of `calls`, those that are counted
    master_after: int | torch.Tensor | None = None  # fingerprint
    group: tuple[Any, dict[str, Any]] | None = None  # the optimizer, and the parameter group of its that has it


@dataclass
class _Call:
    """Of `step`, in progress."""

    optimizer: torch.optim.Optimizer
    stepped: dict[Key, tuple[TrainedParameter, dict[str, Any]]]  # with the parameter group
    factors: dict[Key, float | None]  # of those that have a gradient
    options: dict[int, Options]  # by id of the group
    at_begin: dict[Key, tuple]
    inner: dict[Key, _Step] = field(default_factory=dict)  # of the calls that this one makes
    inner_has: set[int] | None = None  # ids of the parameters of these calls' optimizers; None: it makes none


class Steps:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._running: list[_Call] = []  # each makes the next
        self._steps: dict[Key, _Step] = {}  # of this iteration
        self._of_masters: dict[int, _Step] = {}  # that the program keeps by hand; by id of the group
        self._recorded: set[tuple[Key, Kind]] = set()  # in this iteration
        # Parameters whose state at the end of the iteration `_known_until` follows from what was recorded.
        self._known: set[Key] = set()
        self._known_until = -1
        self._not_known: set[Key] = set()  # of this iteration's

    def begin(
        self, optimizer: torch.optim.Optimizer, stepped: Iterable[TrainedParameter], main_grads: dict[Key, torch.Tensor]
    ) -> None:
        """Before `optimizer` updates the parameters `stepped`. `main_grads` has those that may have changed since they
        were recorded; the others were recorded as they are now, but for `grad_scale`."""
        if self._running and self._running[-1].optimizer is optimizer:  # its closure is evaluated once more
            self._running.pop()
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        call = _Call(optimizer, {}, {}, {}, {})
        for trained in stepped:
            if trained.share.owns_any():
                key, group = (trained.chunk, trained.name), groups[id(trained.share.stepped)]
                call.stepped[key] = trained, group
                call.at_begin[key] = _versions(trained)
                if id(group) not in call.options:
                    call.options[id(group)] = options_of(optimizer, group)
        for group in optimizer.param_groups:
            members = {key: trained for key, (trained, of) in call.stepped.items() if of is group}
            call.factors |= self._factors(members, main_grads, getattr(optimizer, "grad_scale", None))
        unknown = {}
        for key, (trained, group) in call.stepped.items():
            before = self._steps.get(key)
            is_first = before is None or before.facts.calls == 0
            if key in call.factors and is_first and not self._knows(key):
                unknown[key] = optimizer.state.get(trained.share.stepped, {}), group
        for key, count in step_counts(unknown).items():
            self._record_state(call.stepped[key][0], unknown[key][0], count)
        self._running.append(call)

    def begin_of_masters(self, optimizer: torch.optim.Optimizer) -> None:
        """Before `optimizer` updates what the program keeps by hand in the place of parameters: of that, nothing but
        the options is known."""
        for group in optimizer.param_groups:
            facts = StepFacts(class_name(optimizer), options_of(optimizer, group), None, 1, None, "", False)
            self._of_masters.setdefault(id(group), _Step(facts, None, (optimizer, group)))

    def end(self, optimizer: torch.optim.Optimizer) -> None:
        """After it has updated them."""
        while self._running and self._running[-1].optimizer is not optimizer:  # it has raised an exception
            self._running.pop()
        if not self._running:
            return
        call = self._running.pop()
        if self._running:
            has = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            self._running[-1].inner_has = (self._running[-1].inner_has or set()) | has
        found_inf = getattr(optimizer, "found_inf", None)  # a fused one looks at it itself
        skipped = isinstance(found_inf, torch.Tensor) and bool(found_inf.item())
        states = {
            key: (optimizer.state.get(trained.share.stepped, {}), group)
            for key, (trained, group) in call.stepped.items()
        }
        counts = step_counts(states)
        for key in call.stepped:
            step = self._step_of(call, key, counts[key], 0 if skipped or key not in call.factors else 1)
            outer = self._running[-1] if self._running else None
            if outer is None or key not in outer.stepped:
                self._count(key, step)
            elif call.at_begin[key] == outer.at_begin[key]:
                outer.inner[key] = step

    def change_unseen(self, trained: Iterable[TrainedParameter]) -> None:
        """Before a step of theirs that is not recorded."""
        self._not_known.update((each.chunk, each.name) for each in trained)

    def add_unseen(self, optimizer: Any, ready: Iterable[TrainedParameter], before: dict[Key, torch.Tensor]) -> None:
        """After a step of a wrapper around `optimizer`, which had gradients for `ready`. Where it called no step of
        that, it skipped it, or the optimizer is none of PyTorch's kind. `before`: the masters."""
        for trained in ready:
            key = trained.chunk, trained.name
            if key not in self._steps and trained.share.owns_any():
                calls = int(not torch.equal(before[key], trained.share.master))
                facts = StepFacts(class_name(optimizer), (), None, calls, None, _master(trained), False)
                self._steps[key] = _Step(facts)

    def find_changes(self, trained: Iterable[TrainedParameter]) -> None:
        """Where the program goes on: masters that are no more what `step` has left."""
        left = [each for each in trained if self._left_by_step(each) is not None]
        changed = differing(
            ((each.chunk, each.name), self._left_by_step(each), self._fingerprint(each)) for each in left
        )
        for key in changed:
            self._steps[key].facts = self._steps[key].facts._replace(changed_after=True)
        if changed:
            names = [each.name for each in left if (each.chunk, each.name) in changed]
            self._collector.warn(f"{listed(names)} changed after the optimizer's step; param_delta has both")

    def _left_by_step(self, trained: TrainedParameter) -> int | torch.Tensor | None:
        """The fingerprint of the master as `step` has left it."""
        step = self._steps.get((trained.chunk, trained.name))
        return None if step is None else step.master_after

    def _fingerprint(self, trained: TrainedParameter) -> int | torch.Tensor | None:
        return fingerprint(trained.share.master, self._collector.config.library)

    def finish(self, with_gradients: Iterable[TrainedParameter]) -> None:
        """At the end of a recorded iteration. `with_gradients`: parameters that have some, or got some."""
        iteration = self._collector.clock.iteration
        self._name_unstepped([each for each in with_gradients if (each.chunk, each.name) not in self._steps])
        if self._collector.goes_on:
            self._see_schedules()
        masters = {(0, f"{MASTERS}.{number}"): step for number, step in enumerate(self._of_masters.values())}
        for (chunk, name), step in [*self._steps.items(), *masters.items()]:
            if not self._collector.optimizer_steps.add(iteration, chunk, step.facts, name):
                self._collector.warn("not recorded: optimizers' options of further steps, which are too many")
                break
        if self._known_until != iteration - 1:
            self._known = set()
        several = {key for key, step in self._steps.items() if step.facts.calls > 1}
        self._known = (self._known | self._steps.keys()) - several - self._not_known
        self._known_until = iteration
        self._running, self._steps, self._of_masters = [], {}, {}
        self._recorded, self._not_known = set(), set()

    def _see_schedules(self) -> None:
        """What they have made of the options, for the next step."""
        now: dict[int, Options] = {}  # by id of the group
        for step in [*self._steps.values(), *self._of_masters.values()]:
            if step.group is not None:
                optimizer, group = step.group
                if id(group) not in now:
                    now[id(group)] = options_of(optimizer, group)
                changed = tuple(option for option in now[id(group)] if option not in step.facts.options)
                step.facts = step.facts._replace(options_after=changed)

    def _knows(self, key: Key) -> bool:
        if self._collector.config.split:  # each iteration is a trace of its own
            return False
        return self._known_until == self._collector.clock.iteration - 1 and key in self._known

    def _factors(
        self, members: dict[Key, TrainedParameter], main_grads: dict[Key, torch.Tensor], scale: torch.Tensor | None
    ) -> dict[Key, float | None]:
        """Clip factors, by key of those that have a gradient; records the gradient where there is no such factor."""
        gradients = {key: gradient_of(trained.share) for key, trained in members.items()}
        factors: dict[Key, float | None] = {key: None for key, found in gradients.items() if found is not None}
        parts = {key: part_of(members[key], gradients[key]) for key in factors}
        pairs = {}
        for key, part in parts.items():
            main = main_grads.get(key)
            if main is not None and scale is not None and part is not None:
                part = part / scale
            main = members[key].share.gradient() if main is None else main
            if part is not None and main is not None and has_plain_values(main):
                pairs[key] = part, main
        with torch.no_grad():
            factors |= clip_factors(pairs)
        for key, part in parts.items():
            if factors[key] is None and part is not None:
                self._record(members[key], Kind.STEP_GRAD, part if scale is None else part / scale)
        return factors

    def _record_state(self, trained: TrainedParameter, state: dict[str, Any], step: float | None) -> None:
        """`step`: how many the optimizer has taken with it."""
        if not updates_itself(trained.share):
            self._record(trained, Kind.MASTER, trained.share.master)
        for name, kind in STATES.items():
            part = part_of(trained, state[name]) if isinstance(state.get(name), torch.Tensor) else None
            if part is not None and (step is None or step > 0):
                self._record(trained, kind, part)

    def _record(self, trained: TrainedParameter, kind: Kind, part: torch.Tensor) -> None:
        """The first of the iteration."""
        key = (trained.chunk, trained.name), kind
        if key not in self._recorded and not is_flat_shard(trained.share):
            self._recorded.add(key)
            record_part(self._collector, trained, kind, part, trained.share.owned)

    def _step_of(self, call: _Call, key: Key, step: float | None, calls: int) -> _Step:
        """`step`: the optimizer's own count. `calls`: 0 where it has left out the parameter."""
        trained, group = call.stepped[key]
        master_after = self._fingerprint(trained)
        inner = call.inner.get(key)
        if inner is not None and not differing([(key, inner.master_after, master_after)]):
            inner.group = call.optimizer, group  # whose options a schedule changes, and which hands them on
            return inner
        state = call.optimizer.state.get(trained.share.stepped, {})
        if any(isinstance(state.get(name), torch.Tensor) and state[name].element_size() < 4 for name in STATES):
            self._not_known.add(key)
        if call.inner_has is not None and id(trained.share.stepped) not in call.inner_has:
            return _Step(StepFacts("", (), None, 0, None, _master(trained), False), master_after)
        options, factor = call.options[id(group)], call.factors.get(key)
        facts = StepFacts(class_name(call.optimizer), options, step, calls, factor, _master(trained), False)
        return _Step(facts, master_after, (call.optimizer, group))

    def _count(self, key: Key, step: _Step) -> None:
        before = self._steps.get(key)
        if before is not None and step.facts.calls == 0:
            return
        if before is not None:
            calls = before.facts.calls + step.facts.calls
            # The main gradient is that of the first.
            factor = step.facts.clip_factor if calls == step.facts.calls else None
            step.facts = step.facts._replace(calls=calls, clip_factor=factor)
        self._steps[key] = step

    def _name_unstepped(self, unstepped: list[TrainedParameter]) -> None:
        """Their optimizer has left out the iteration, or they have none."""
        if not unstepped:
            return
        owners = _owners()
        found = {(each.chunk, each.name): owners.get(id(each.share.stepped), (None, {})) for each in unstepped}
        states = {
            (each.chunk, each.name): (optimizer.state.get(each.share.stepped, {}), group)
            for each, (optimizer, group) in zip(unstepped, found.values(), strict=True)
            if optimizer is not None
        }
        counts = step_counts(states)
        for trained in unstepped:
            key = trained.chunk, trained.name
            optimizer, group = found[key]
            options = () if optimizer is None else options_of(optimizer, group)
            name = "" if optimizer is None else class_name(optimizer)
            self._steps[key] = _Step(StepFacts(name, options, counts.get(key), 0, None, _master(trained), False))


def _master(trained: TrainedParameter) -> str:
    return "" if updates_itself(trained.share) else dtype_name(trained.share.master.dtype)


def _versions(trained: TrainedParameter) -> tuple:
    """Another one where the master or its gradient has changed in between."""
    gradient = gradient_of(trained.share)
    tensors = [local_part(tensor) for tensor in (trained.share.stepped, gradient) if tensor is not None]
    return tuple((tensor.data_ptr(), tensor._version) for tensor in tensors if tensor.layout is torch.strided)


def _owners() -> dict[int, tuple[torch.optim.Optimizer, dict[str, Any]]]:
    """By id of what its groups list. PyTorch keeps no list of its optimizers."""
    found = instances_of(torch.optim.Optimizer)
    found.sort(key=lambda optimizer: hasattr(type(optimizer).step, "hooked"))  # the last ones: no wrappers of others
    return {
        id(parameter): (optimizer, group)
        for optimizer in found
        for group in getattr(optimizer, "param_groups", ())
        for parameter in group["params"]
    }
