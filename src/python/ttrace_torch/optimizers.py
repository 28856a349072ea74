"""The optimizer's part: main gradients before clipping, the gradient norm, parameter deltas, parameters after.

`main_grad` is what the optimizer is about to use, taken at the first of: the division by a loss scale, a call of
PyTorch's clipping functions, an optimizer step. That division (torch.amp.GradScaler and Megatron-LM call the same
function of PyTorch) also looks for overflow, and where there is one, no optimizer step follows. The step counts all the
same, with what it did to the parameters: nothing. Once it was seen, a gradient that it has not divided may still have
the scale on it, and is taken where it is clipped or where its own optimizer steps. Fused optimizers divide in their
kernel, by their attribute `grad_scale`: what is recorded is what the kernel will use.

Two attributes of Megatron-LM's are known: a parameter's `main_grad`, and its fp32 master `main_param`; which part of
them this rank has under ZeRO, ownership.py says. Some frameworks copy the masters back after `step` has returned, so
`param_after` is read late: when the program calls a module again, or ends."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import adapters, library
from .clock import Chunk
from .collector import Collector
from .gradients import Gradients
from .ownership import OwnedRange, owned_range
from .tensors import is_dtensor

_TAKES_NORM = ("clip_grads_with_norm_", "clip_grad_by_total_norm_fp32")  # as third argument; others return it
_UNSCALING = "_amp_foreach_non_finite_check_and_unscale_"
_CLIPPING = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_")


class Optimizers:
    def __init__(self, collector: Collector, gradients: Gradients):
        self._collector, self._gradients = collector, gradients
        self._iteration = -1  # of what follows
        self._before: dict[int, torch.Tensor] = {}  # master -> its value before the step
        self._main_grads: set[tuple[int, str]] = set()  # (chunk, name) of those that are recorded
        self._deltas: set[tuple[int, str]] = set()
        self._norms = 0
        self._unscaled = False  # some gradients were, in this iteration
        self._only_looks = False  # for overflow; the division is left to a fused optimizer

    def install(self) -> None:
        collector = self._collector
        register_optimizer_step_pre_hook(lambda optimizer, *_: collector.safely(self._before_step, optimizer))
        register_optimizer_step_post_hook(lambda optimizer, *_: collector.safely(self._after_step, optimizer))
        collector.record_params_after = self._record_params_after
        scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)
        scaler._check_inf_per_device = self._looking(scaler._check_inf_per_device)
        if hasattr(torch, _UNSCALING):
            setattr(torch, _UNSCALING, self._unscaling(getattr(torch, _UNSCALING)))
        for name in _CLIPPING:
            for module in (torch.nn.utils.clip_grad, torch.nn.utils):
                if hasattr(module, name):
                    setattr(module, name, self._clipping(name, getattr(module, name)))

    def install_adapters(self) -> None:
        for module, name in adapters.loaded("CLIPPING"):
            setattr(module, name, self._clipping(name, getattr(module, name)))

    def _clipping(self, name: str, clip: Callable) -> Callable:
        collector, takes_norm = self._collector, name in _TAKES_NORM

        @functools.wraps(clip)
        def patched(*args, **kwargs):
            given = args[0] if args else kwargs.get("parameters")
            if isinstance(given, Iterator):  # which looking uses up
                given = list(given)
                args, kwargs = ((given, *args[1:]), kwargs) if args else (args, {**kwargs, "parameters": given})
            collector.safely(self._record_main_grads, given)
            result = clip(*args, **kwargs)
            norm = kwargs.get("total_norm", args[2] if len(args) > 2 else None) if takes_norm else result
            if isinstance(norm, torch.Tensor) and is_dtensor(norm):
                # Each rank's share, to be squared and summed. The ranks must all take part, also one whose recording
                # has stopped.
                norm = norm.full_tensor()
            collector.safely(self._record_norm, norm)
            return result

        return patched

    def _looking(self, look: Callable) -> Callable:
        @functools.wraps(look)
        def patched(*args, **kwargs):
            self._only_looks = True
            try:
                return look(*args, **kwargs)
            finally:
                self._only_looks = False

        return patched

    def _unscaling(self, unscale: Callable) -> Callable:
        collector = self._collector

        @functools.wraps(unscale)
        def patched(gradients, *args, **kwargs):
            result = unscale(gradients, *args, **kwargs)
            collector.safely(self._after_unscaling, gradients)
            return result

        return patched

    def _after_unscaling(self, gradients: Iterable[torch.Tensor]) -> None:
        self._gradients.record_portions()
        self._begin_iteration()
        self._unscaled = True
        if self._collector.is_recorded() and not self._only_looks:
            addresses = {_address(gradient) for gradient in gradients}
            with_gradient = [trained for trained in self._trained() if trained.main_grad() is not None]
            unscaled = [trained for trained in with_gradient if _address(trained.main_grad()) in addresses]
            self._record_main_grads_of(unscaled)
            self._keep(unscaled)
        self._collector.clock.step()

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        given = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._record_main_grads(given, getattr(optimizer, "grad_scale", None))
        if self._collector.is_recorded():
            self._keep(self._stepped_by(optimizer))

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self._collector.is_recorded():
            self._record_deltas(self._stepped_by(optimizer))
        self._collector.clock.step()

    def _stepped_by(self, optimizer: torch.optim.Optimizer) -> list:
        stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [trained for trained in self._trained() if id(trained.master) in stepped]

    def _keep(self, about_to_change: Iterable["Trained"]) -> None:
        for trained in about_to_change:
            if id(trained.master) not in self._before:
                self._before[id(trained.master)] = trained.master.detach().clone()

    def _record_deltas(self, changed: Iterable["Trained"]) -> None:
        self._begin_iteration()
        for trained in changed:
            if id(trained.master) in self._before and (trained.chunk, trained.name) not in self._deltas:
                self._deltas.add((trained.chunk, trained.name))
                self._record_delta(trained, self._before[id(trained.master)])

    def _begin_iteration(self) -> None:
        """Where this is a new one, forgets the last."""
        if self._iteration != self._collector.clock.iteration:
            self._iteration = self._collector.clock.iteration
            self._before, self._main_grads, self._deltas, self._norms = {}, set(), set(), 0
            self._unscaled = False

    def _record_delta(self, trained: "Trained", before: torch.Tensor) -> None:
        master, owned = trained.master, trained.owned
        if owned is None and master.shape != trained.parameter.shape:
            self._collector.warn(f"not traceable: param_delta of '{trained.name}', whose master is a flat shard")
            return
        wide = torch.float64 if master.dtype == torch.float64 else torch.float32
        with torch.no_grad():
            delta = master.detach().to(wide) - before.to(wide)
        self._record(library.PARAM_DELTA, trained, delta)

    def _record(self, kind: int, trained: "Trained", tensor: torch.Tensor) -> None:
        """`tensor` has what this rank owns of the parameter; nothing is recorded of nothing."""
        owned = trained.owned
        if owned is None:
            self._collector.record_parameter(trained.chunk, kind, trained.name, tensor)
        elif owned.end > owned.begin:
            mapping = owned.mapping(trained.parameter)
            self._collector.record_parameter(trained.chunk, kind, trained.name, tensor, mapping)

    def _record_main_grads(self, given, scale: torch.Tensor | None = None) -> None:
        """Before a function uses `given`, parameters or masters. Their gradients have the loss scale `scale` on them."""
        self._gradients.record_portions()
        if not self._collector.is_recorded():
            return
        self._begin_iteration()
        ready = list(self._trained())
        if self._unscaled or scale is not None:
            keys = {id(tensor) for tensor in ([given] if isinstance(given, torch.Tensor) else given)}
            ready = [trained for trained in ready if keys & {id(trained.master), id(trained.parameter)}]
        self._record_main_grads_of(ready, scale)

    def _record_main_grads_of(self, ready: Iterable["Trained"], scale: torch.Tensor | None = None) -> None:
        self._begin_iteration()
        for trained in ready:
            gradient = trained.main_grad()
            if gradient is not None and (trained.chunk, trained.name) not in self._main_grads:
                self._main_grads.add((trained.chunk, trained.name))
                with torch.no_grad():
                    self._record(library.MAIN_GRAD, trained, gradient if scale is None else gradient / scale)

    def _record_norm(self, norm) -> None:
        if not self._collector.is_recorded() or not isinstance(norm, (torch.Tensor, float)):
            return
        self._begin_iteration()
        count, self._norms = self._norms, self._norms + 1
        value = norm.detach().reshape(()) if isinstance(norm, torch.Tensor) else torch.tensor(norm)
        self._collector.record_parameter(0, library.SCALAR, f"grad_norm#{count}" if count else "grad_norm", value)

    def _record_params_after(self) -> None:
        self._record_deltas(self._trained())  # of a step that was skipped
        self._before = {}
        for trained in self._trained():
            self._collector.record_parameter(trained.chunk, library.PARAM_AFTER, trained.name, trained.parameter)

    def _trained(self) -> Iterator["Trained"]:
        """Every parameter of the chunks that ran in this iteration."""
        for chunk in self._collector.clock.chunks.values():
            if chunk.microbatches:
                yield from trained_in(chunk)


class Trained(NamedTuple):
    chunk: int
    name: str
    parameter: torch.nn.Parameter
    master: torch.Tensor  # what the optimizer updates
    owned: OwnedRange | None  # None: the whole parameter

    def main_grad(self) -> torch.Tensor | None:
        """Of what this rank owns."""
        gradient = _main_grad(self.parameter)
        return gradient if gradient is None or self.owned is None else self.owned.of(self.parameter, gradient)


def trained_in(chunk: Chunk) -> Iterator[Trained]:
    for name, parameter in chunk.parameters():
        owned = owned_range(parameter)
        master = getattr(parameter, "main_param", None) if owned is None else owned.master
        if not isinstance(master, torch.Tensor):
            master = parameter
        yield Trained(chunk.number, name, parameter, master, owned)


def _main_grad(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    main_grad = getattr(parameter, "main_grad", None)
    if isinstance(main_grad, torch.Tensor):
        return main_grad
    master_grad = getattr(getattr(parameter, "main_param", None), "grad", None)
    return parameter.grad if master_grad is None else master_grad


def _address(tensor: torch.Tensor) -> int:
    return (tensor._local_tensor if is_dtensor(tensor) else tensor).data_ptr()
