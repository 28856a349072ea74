"""The optimizer's part: main gradients before clipping, the gradient norm, parameter deltas, parameters after.

`main_grad` is what the optimizer is about to use, taken at the first of: the division by a loss scale, a call of
PyTorch's clipping functions, an optimizer step. That division (torch.amp.GradScaler and Megatron-LM call the same
function of PyTorch) also looks for overflow, and where there is one, no optimizer step follows. The step counts all the
same, with what it did to the parameters: nothing. Once it was seen, a gradient that it has not divided may still have
the scale on it, and is taken where it is clipped or where its own optimizer steps. Fused optimizers divide in their
kernel, by their attribute `grad_scale`: what is recorded is what the kernel will use.

Some frameworks copy the masters (masters.py) back after `step` has returned, and an optimizer may step more than once
in an iteration. So `param_delta` and `param_after` are read late: when the program calls a module again, or ends. An
iteration may go on then, to the steps of other optimizers (turns.py), and have further steps of this one: of each
parameter the first counts, and what the program does until that call. Where
ranks gather what others own later still, when a module is about to use it, each rank's `param_after` is what it
owns."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import adapters, patches
from .adapters import Adapter, Clipping
from .clock import CallCounts
from .collector import Collector
from .copies import Copies
from .gradients import Gradients
from .imports import after_import
from .late_reads import LateReads
from .library import Kind, TensorId
from .masters import TrainedParameter, record_part, trained_parameters
from .no_module import OfNoModule
from .own_steps import OwnSteps
from .problems import listed
from .step_facts import is_flat_shard
from .steps import Key, Steps
from .tensors import INSIDE_GRAPH, is_capturing, is_dtensor, local_part
from .trained import Account
from .turns import Turns

_UNSCALING = "_amp_foreach_non_finite_check_and_unscale_"
_CLIPPING = [
    Clipping(module, name, norm)
    for module in ("torch.nn.utils.clip_grad", "torch.nn.utils")
    for name, norm in (
        ("clip_grad_norm_", "result"),
        ("clip_grad_norm", "result"),
        ("clip_grad_value_", None),
        ("clip_grads_with_norm_", "argument"),
    )
]


class Optimizers:
    def __init__(self, collector: Collector, gradients: Gradients):
        self._collector, self._gradients = collector, gradients
        self._iteration = -1  # the one that what comes behind belongs to
        self._turns, self._steps, self._account = Turns(collector), Steps(collector), Account(collector)
        self._of_no_module = OfNoModule(collector)
        self._late_reads = LateReads(collector)
        self._before_step: Copies[Key] = Copies()  # values of the masters
        self._main_grads: Copies[Key] = Copies()  # as recorded, on the host; of those that may yet be clipped
        self._recorded: set[TensorId] = set()  # main gradients and deltas: the first of each counts
        self._wrapped_once_imported: set[Clipping] = set()
        self._settled: set[Key] = set()  # whose values after their step have been recorded
        self._captured: set[Key] = set()  # whose step went into a CUDA graph: when it is taken is not seen
        self._norms = CallCounts()
        self._clipping = False  # in a function that clips gradients
        self._norm_used: Any = None  # the last one that a clipping function was given
        self._unscaled = False  # some gradients were divided by the loss scale
        self._only_looks_for_overflow = False  # and leaves the division to a fused optimizer

    def install(self) -> None:
        collector = self._collector
        begin = register_optimizer_step_pre_hook(
            lambda optimizer, args, kwargs: collector.safely(self._on_step_begin, optimizer, args, kwargs)
        )
        end = register_optimizer_step_post_hook(lambda optimizer, *_: self._after_step(optimizer))
        patches.keep(begin)
        patches.keep(end)
        self._turns.install()
        OwnSteps(collector, self._turns.optimizers).install()
        collector.awaits_steps = self._awaits_steps
        collector.is_waiting_for_steps = self._turns.are_to_come
        collector.evaluates_otherwise = self._evaluates_otherwise
        collector.record_params_after = self._record_params_after
        collector.record_gradients_left = self._record_gradients_left
        collector.on_iteration_end.append(self._finish_steps)
        scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)
        patches.replace(scaler, "_check_inf_per_device", self._wrap_overflow_check(scaler._check_inf_per_device))
        if hasattr(torch, _UNSCALING):
            patches.replace(torch, _UNSCALING, self._wrap_unscaling(getattr(torch, _UNSCALING)))
        for clipping in _CLIPPING:
            clipping.wrap(functools.partial(self._wrap_clipping, clipping))
        # A program may take hold of a method before its first model runs: `clip = model.clip_grad_norm_`.
        self._wrapped_once_imported = set(adapters.functions("clipping"))
        for clipping in self._wrapped_once_imported:
            wrap = functools.partial(clipping.wrap, functools.partial(self._wrap_clipping, clipping))
            after_import(clipping.module, lambda _, wrap=wrap: wrap())

    def install_adapters(self) -> None:
        for clipping in adapters.functions("clipping"):
            if clipping not in self._wrapped_once_imported:  # of an adapter that the program has defined
                clipping.wrap(functools.partial(self._wrap_clipping, clipping))
        for adapter in adapters.OVERRIDING["steps"]:
            for step in adapter.steps:
                step.wrap(functools.partial(self._wrap_step, adapter))

    def _wrap_clipping(self, clipping: Clipping, clip: Callable) -> Callable:
        collector, takes_norm, third = self._collector, clipping.norm == "argument", _third_parameter(clip)

        @functools.wraps(clip)
        def patched(*args: Any, **kwargs: Any) -> Any:
            if self._clipping:  # by the function that has called this one
                return clip(*args, **kwargs)
            given = args[0] if args else kwargs.get("parameters")
            if isinstance(given, Iterator):  # looking into one uses it up
                given = list(given)
                args, kwargs = ((given, *args[1:]), kwargs) if args else (args, {**kwargs, "parameters": given})
            owned = given.parameters() if isinstance(given, torch.nn.Module) else given  # a method of that module
            if isinstance(given, torch.optim.Optimizer):
                owned = [parameter for group in given.param_groups for parameter in group["params"]]
            collector.safely(self._before_clipping, owned)
            self._clipping = True
            try:
                result = clip(*args, **kwargs)
            finally:
                self._clipping = False
            norm = (args[2] if len(args) > 2 else kwargs.get(third)) if takes_norm else result
            if isinstance(norm, torch.Tensor) and is_dtensor(norm):
                # Each rank's share, to be squared and summed. The ranks must all take part, also one whose recording
                # has stopped.
                norm = norm.full_tensor()
            if clipping.norm is not None:
                collector.safely(self._record_norm_of_clipping, clipping, norm)
            return result

        return patched

    def _wrap_step(self, adapter: Adapter, step: Callable) -> Callable:
        collector = self._collector

        @functools.wraps(step)
        def patched(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            scale = collector.safely(adapter.loss_scale, optimizer)
            collector.safely(self._before_wrapped_step, optimizer, scale)
            result = step(optimizer, *args, **kwargs)
            collector.safely(self._after_wrapped_step, adapter, optimizer, scale)
            return result

        return patched

    def _before_wrapped_step(self, optimizer: Any, scale: float) -> None:
        self._gradients.record_portions()
        if self._collector.is_recorded():
            inner = getattr(optimizer, "optimizer", optimizer)
            given = [parameter for group in getattr(inner, "param_groups", ()) for parameter in group["params"]]
            every = self._not_of_others(self._trained_parameters(), {id(tensor) for tensor in given}, stepping=True)
            ready = [trained for trained in every if trained.share.gradient() is not None]
            self._record_main_grads_of(ready, None if scale == 1 else scale)
            self._keep_masters(ready)

    def _after_wrapped_step(self, adapter: Adapter, optimizer: Any, scale: float) -> None:
        self._record_norm(adapter.gradient_norm(optimizer, scale))
        if self._collector.is_recorded():
            kept = [each for each in self._trained_parameters() if (each.chunk, each.name) in self._before_step.kept]
            self._steps.add_unseen(getattr(optimizer, "optimizer", optimizer), kept, self._before_step.kept)
        self._turns.skip(getattr(optimizer, "optimizer", optimizer))  # its step was seen, unless overflow forbade it
        self._collector.clock.step()

    def _wrap_overflow_check(self, check: Callable) -> Callable:
        @functools.wraps(check)
        def patched(*args: Any, **kwargs: Any) -> Any:
            self._only_looks_for_overflow = True
            try:
                return check(*args, **kwargs)
            finally:
                self._only_looks_for_overflow = False

        return patched

    def _wrap_unscaling(self, unscale: Callable) -> Callable:
        collector = self._collector

        @functools.wraps(unscale)
        def patched(gradients: Iterable[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
            result = unscale(gradients, *args, **kwargs)
            collector.safely(self._after_unscaling, gradients)
            return result

        return patched

    def _after_unscaling(self, gradients: Iterable[torch.Tensor]) -> None:
        self._gradients.record_portions()
        self._begin_iteration()
        self._unscaled = True
        if self._collector.is_recorded() and not self._only_looks_for_overflow:
            parts = [_addresses(gradient) for gradient in gradients]
            unscaled = [trained for trained in self._trained_parameters() if _is_part(trained.share.gradient(), parts)]
            self._record_main_grads_of(unscaled)
            self._keep_masters(unscaled)
        self._turns.skip_with(gradients)
        self._collector.clock.step()

    def _on_step_begin(
        self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[tuple, dict[str, Any]] | None:
        """Returns the arguments that `step` is to be called with, or None for those that it was: a closure among them
        runs the forward and the backward, and only then the gradients are there."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            return self._before_update(optimizer)

        @functools.wraps(closure)
        def observed(*arguments: Any, **options: Any) -> Any:
            result = closure(*arguments, **options)
            self._collector.safely(self._before_update, optimizer)
            return result

        return (
            (args, {**kwargs, "closure": observed}) if "closure" in kwargs else ((args[0], observed, *args[2:]), kwargs)
        )

    def _before_update(self, optimizer: torch.optim.Optimizer) -> None:
        self._gradients.record_portions()
        if not self._collector.is_recorded():
            return
        if self._of_no_module.look(optimizer, self._turns.optimizers()):
            self._steps.begin_of_masters(optimizer)
        trained = self._trained_parameters()
        given = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._record_main_grads(trained, given, getattr(optimizer, "grad_scale", None), stepping=True)
        stepped = _stepped_by(optimizer, trained)
        if is_capturing():
            self._name_captured(stepped, (Kind.PARAM_DELTA, Kind.PARAM_AFTER))
            self._captured.update((each.chunk, each.name) for each in stepped)
            return
        first = [each for each in stepped if (each.chunk, each.name) not in self._settled]
        self._keep_masters(first)
        self._steps.begin(optimizer, first, self._main_grads.kept)
        self._steps.change_unseen(each for each in stepped if (each.chunk, each.name) in self._settled)

    def _evaluates_otherwise(self) -> bool:
        """Some optimizer puts other values into its parameters for an evaluation, as schedule-free ones do."""
        return any(callable(getattr(optimizer, "eval", None)) for optimizer in self._turns.optimizers())

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self._collector.threads.is_aside():
            self._turns.leave_alone(optimizer)
        self._collector.safely(self._on_step_end, optimizer)

    def _on_step_end(self, optimizer: torch.optim.Optimizer) -> None:
        self._turns.step(optimizer)
        if self._collector.is_recorded():
            self._steps.end(optimizer)
            if self._collector.clock.params_read:  # by an evaluation between two optimizers' steps
                self._record_deltas(_stepped_by(optimizer, self._trained_parameters()))
        self._collector.clock.step()

    def _name_captured(self, trained: Iterable[TrainedParameter], kinds: tuple[Kind, ...]) -> None:
        for each in trained:
            self._collector.not_seen(INSIDE_GRAPH, kinds, each.chunk, tensors=[each.name])

    def _keep_masters(self, about_to_change: Iterable[TrainedParameter]) -> None:
        if is_capturing():
            return
        for trained in about_to_change:
            key = trained.chunk, trained.name
            if key not in self._before_step.kept:
                self._before_step.keep(key, trained.share.master)

    def _record_deltas(self, changed: Iterable[TrainedParameter]) -> None:
        self._begin_iteration()
        for trained in changed:
            before = self._before_step.kept.get((trained.chunk, trained.name))
            if before is not None and self._is_first(Kind.PARAM_DELTA, trained):
                self._record_delta(trained, before)

    def _begin_iteration(self) -> None:
        """Where this is a new one, forgets the last."""
        if self._iteration != self._collector.clock.iteration:
            self._iteration = self._collector.clock.iteration
            self._before_step.forget()
            self._main_grads.forget()
            self._recorded, self._captured, self._norms = set(), set(), CallCounts()
            self._settled = set()
            self._norm_used = None
            self._unscaled = False

    def _forget_copies(self) -> None:
        for copies in (self._before_step, self._main_grads):
            copies.forget()
            if not self._collector.schedule.is_due(self._collector.clock.iteration + 1):
                copies.release()

    def _is_first(self, kind: Kind, trained: TrainedParameter) -> bool:
        """Whether this is the parameter's first tensor of that kind in this iteration; the next one is not."""
        tensor_id = self._collector.clock.parameter_id(trained.chunk, kind, trained.name)
        if tensor_id in self._recorded:
            return False
        self._recorded.add(tensor_id)
        return True

    def _record_delta(self, trained: TrainedParameter, before: torch.Tensor) -> None:
        master, reason = trained.share.master, ""
        if is_flat_shard(trained.share):
            reason = "whose master is a flat shard"
        elif master.shape != before.shape or master.dtype != before.dtype:
            reason = "whose master is no more where it was"
        if reason:
            self._collector.warn(f"not traceable: param_delta of '{trained.name}', {reason}")
            self._collector.not_seen(
                f"of a parameter {reason}", (Kind.PARAM_DELTA,), trained.chunk, tensors=[trained.name]
            )
            return
        wide = torch.promote_types(master.dtype, torch.float32)
        with torch.no_grad():
            delta = master.detach().to(wide) - before.to(wide)
        # What is frozen and stays is no update: optimizers of other ranks, or of another program, need not have it.
        if not trained.share.held.requires_grad and not delta.any():
            return
        record_part(self._collector, trained, Kind.PARAM_DELTA, delta, trained.share.owned)

    def _before_clipping(self, given: torch.Tensor | Iterable[torch.Tensor]) -> None:
        """Of the gradients of `given`, which are parameters or masters."""
        self._gradients.record_portions()
        if self._collector.is_recorded():
            self._record_main_grads(self._trained_parameters(), [given] if isinstance(given, torch.Tensor) else given)

    def _record_main_grads(
        self,
        ready: list[TrainedParameter],
        given: Iterable[torch.Tensor],
        scale: torch.Tensor | None = None,
        stepping: bool = False,
    ) -> None:
        """Before a function uses the gradients of `given`, which are parameters or masters of some that are `ready`.
        `scale` is the loss scale that is still on them. `stepping`: that function is an optimizer's step."""
        self._begin_iteration()
        keys = {id(tensor) for tensor in given}
        ready = self._not_of_others(ready, keys, stepping)
        if self._unscaled or scale is not None:
            ready = [trained for trained in ready if keys & {id(trained.share.stepped), id(trained.share.held)}]
        self._record_main_grads_of(ready, scale, keys if stepping else set())

    def _not_of_others(
        self, trained: list[TrainedParameter], given: set[int], stepping: bool
    ) -> list[TrainedParameter]:
        """Without those whose gradients another optimizer will use than the one that is about to use `given`: they may
        not be there yet, or be of the iteration before."""
        others = self._turns.of_others(given, stepping)
        return [each for each in trained if not others & {id(each.share.stepped), id(each.share.held)}]

    def _record_main_grads_of(
        self,
        ready: Iterable[TrainedParameter],
        scale: torch.Tensor | float | None = None,
        used_now: Collection[int] = (),
    ) -> None:
        """`used_now`: ids of what an optimizer is about to step with. Until another one uses the rest, that may be
        clipped."""
        self._begin_iteration()
        if is_capturing():
            self._name_captured(ready, (Kind.MAIN_GRAD,))
            return
        for trained in ready:
            gradient = trained.share.gradient()
            if gradient is not None and self._is_first(Kind.MAIN_GRAD, trained):
                with torch.no_grad():
                    unscaled = gradient if scale is None else gradient / scale
                record_part(self._collector, trained, Kind.MAIN_GRAD, unscaled, trained.share.owned)
                if self._collector.zero_gradients is not None:
                    self._collector.zero_gradients.add(trained.name, unscaled)
                if id(trained.share.stepped) not in used_now:
                    host = local_part(unscaled).detach().to("cpu")
                    if host.data_ptr() == local_part(gradient).data_ptr():
                        self._main_grads.keep((trained.chunk, trained.name), host)
                    else:
                        self._main_grads.kept[trained.chunk, trained.name] = host  # a copy already

    def _record_norm_of_clipping(self, clipping: Clipping, norm: Any) -> None:
        if self._collector.is_recorded() and not isinstance(norm, (torch.Tensor, float)):
            self._collector.warn(
                f"not recorded: grad_norm of '{clipping.name}', which should be its {clipping.norm}; expected a tensor "
                f"or a float, not {type(norm).__name__}"
            )
        self._record_norm(norm, clipping.norm == "argument")

    def _record_norm(self, norm: Any, is_given: bool = False) -> None:
        """`is_given`: to a function that clips by it. Several may be given one norm, each for some parameters."""
        if not self._collector.is_recorded() or not isinstance(norm, (torch.Tensor, float)):
            return
        self._begin_iteration()
        if is_given and norm is self._norm_used:
            return
        self._norm_used = norm if is_given else None
        name = "grad_norm" + self._norms.next_suffix("grad_norm")
        value = norm.detach().reshape(()) if isinstance(norm, torch.Tensor) else torch.tensor(norm)
        self._collector.record(self._collector.clock.parameter_id(0, Kind.SCALAR, name), value)

    def _awaits_steps(self) -> bool:
        """Before a call of a model that comes after a step: whether the iteration goes on. What has stepped is settled:
        what a further step of it does in this iteration is seen in what the program computes with it, not recorded."""
        awaits = self._turns.await_steps()
        if awaits and self._collector.is_recorded():
            self._begin_iteration()
            unsettled = self._before_step.kept.keys() - self._settled
            if unsettled:
                self._settle([each for each in self._trained_parameters() if (each.chunk, each.name) in unsettled])
        return awaits

    def _record_params_after(self) -> None:
        self._begin_iteration()
        every = self._trained_parameters()
        self._settle([each for each in every if (each.chunk, each.name) not in self._settled])
        self._forget_copies()
        self._name_unseen(every)

    def _settle(self, stepped: list[TrainedParameter]) -> None:
        """They are as the program goes on with them."""
        self._settled.update((each.chunk, each.name) for each in stepped)
        self._record_deltas(stepped)  # also of a step that was skipped
        self._steps.find_changes(stepped)
        in_optimizers = {id(each) for _, groups in self._turns.held() for group in groups for each in group}
        seen = [each for each in stepped if (each.chunk, each.name) not in self._captured]
        late = self._late_reads.put_off(seen, in_optimizers)
        for trained in seen:
            share = trained.share
            if id(share.held) in late:
                continue
            if share.owned is not None and share.is_gathered_late:
                owned = share.owned.of(share.held.detach())
                record_part(self._collector, trained, Kind.PARAM_AFTER, owned, share.owned)
            else:
                record_part(self._collector, trained, Kind.PARAM_AFTER, share.held, share.held_range)

    def _name_unseen(self, trained: Iterable[TrainedParameter]) -> None:
        """Those that got a gradient in this iteration, of which no optimizer was seen to use it."""
        clock = self._collector.clock
        with_gradients = [
            each for each in self._with_gradients(trained) if (each.chunk, each.name) not in self._captured
        ]
        for chunk in clock.chunks.values():
            trains = [each.name for each in with_gradients if each.chunk == chunk.number]
            for kind in (Kind.MAIN_GRAD, Kind.PARAM_DELTA):
                names = [name for name in trains if clock.parameter_id(chunk.number, kind, name) not in self._recorded]
                if names:
                    self._collector.warn(
                        f"not recorded: {kind.text} of {listed(names)}, with which no step of an optimizer was seen"
                    )

    def _finish_steps(self) -> None:
        clock = self._collector.clock
        if self._collector.is_recorded() and clock.ever_stepped:
            every = self._trained_parameters()
            have = {(each.chunk, each.name) for each in self._with_gradients(every)}
            have |= {(each.chunk, each.name) for each in self._recorded if each.kind == Kind.MAIN_GRAD}
            have -= self._captured
            owned = (each for each in every if each.share.owns_any())
            self._steps.finish(each for each in owned if (each.chunk, each.name) in have)
            self._account.look(self._turns.held(), have, self._of_no_module.parameters())

    def _record_gradients_left(self) -> None:
        """Of an iteration without a step: what is there for one."""
        self._gradients.record_portions()
        if self._collector.is_recorded():
            self._record_main_grads_of(self._that_got_gradients(self._trained_parameters()))

    def _with_gradients(self, trained: Iterable[TrainedParameter]) -> list[TrainedParameter]:
        """None where the program was not seen to step at all."""
        return self._that_got_gradients(trained) if self._collector.clock.ever_stepped else []

    def _that_got_gradients(self, trained: Iterable[TrainedParameter]) -> list[TrainedParameter]:
        """Those of which this rank owns some, and for which a gradient arrived in this iteration."""
        arrived = self._collector.clock.got_gradients()
        return [each for each in trained if (each.chunk, each.name) in arrived and each.share.owns_any()]

    def _trained_parameters(self) -> list[TrainedParameter]:
        """Of the chunks that ran in this iteration, and of none. To ask all adapters takes long: once an event."""
        chunks = [chunk for chunk in self._collector.clock.chunks.values() if chunk.microbatches]
        of_chunks = [trained for chunk in chunks for trained in trained_parameters(chunk)]
        return of_chunks + self._of_no_module.parameters()


def _third_parameter(function: Callable) -> str:
    """Its name; "" where it has none, or the function does not say."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ""
    return names[2] if len(names) > 2 else ""


def _stepped_by(optimizer: torch.optim.Optimizer, trained: Iterable[TrainedParameter]) -> list[TrainedParameter]:
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return [each for each in trained if id(each.share.stepped) in stepped]


def _addresses(tensor: torch.Tensor) -> range:
    """Of its bytes."""
    local = local_part(tensor)
    return range(local.data_ptr(), local.data_ptr() + max(local.numel(), 1) * local.element_size())


def _is_part(gradient: torch.Tensor | None, parts: list[range]) -> bool:
    """Whether `gradient` begins in one of `parts`: a flattened gradient holds that of many parameters."""
    return gradient is not None and any(_addresses(gradient).start in part for part in parts)
