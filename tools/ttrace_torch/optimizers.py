"""The optimizer's part: main gradients before clipping, the gradient norm, parameter deltas, parameters after.

`main_grad` is what the optimizer is about to use, taken at the first of: a call of PyTorch's clipping functions, an
optimizer step. Two attributes of Megatron-LM's are known: a parameter's `main_grad`, and its fp32 master
`main_param`; which part of them this rank has under ZeRO, ownership.py says. Some frameworks copy the masters back
after `step` has returned, so `param_after` is read late: when the program calls a module again, or ends."""

import functools
from typing import Callable, Dict, Iterator, NamedTuple, Optional

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import adapters, library
from .collector import Collector
from .gradients import Gradients
from .ownership import OwnedRange, owned_range
from .tensors import is_dtensor

_TAKES_NORM = ("clip_grads_with_norm_", "clip_grad_by_total_norm_fp32")  # as third argument; others return it
_CLIPPING = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_")


class Optimizers:
    def __init__(self, collector: Collector, gradients: Gradients):
        self._collector, self._gradients = collector, gradients
        self._before: Dict[int, Dict[int, torch.Tensor]] = {}  # optimizer -> master -> its value before the step
        self._done = -1  # the iteration whose main gradients are recorded
        self._norms = (-1, 0)  # iteration, gradient norms so far
        self._deltas = set()

    def install(self) -> None:
        collector = self._collector
        register_optimizer_step_pre_hook(lambda optimizer, *_: collector.safely(self._before_step, optimizer))
        register_optimizer_step_post_hook(lambda optimizer, *_: collector.safely(self._after_step, optimizer))
        collector.record_params_after = self._record_params_after
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
            collector.safely(self._record_main_grads)
            result = clip(*args, **kwargs)
            norm = kwargs.get("total_norm", args[2] if len(args) > 2 else None) if takes_norm else result
            if isinstance(norm, torch.Tensor) and is_dtensor(norm):
                # Each rank's share, to be squared and summed. The ranks must all take part, also one whose recording
                # has stopped.
                norm = norm.full_tensor()
            collector.safely(self._record_norm, norm)
            return result

        return patched

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._record_main_grads()
        if not self._collector.is_recorded():
            return
        stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self._before[id(optimizer)] = {
            id(trained.master): trained.master.detach().clone()
            for trained in self._trained()
            if id(trained.master) in stepped
        }

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        before = self._before.pop(id(optimizer), {})
        for trained in self._trained():
            if id(trained.master) in before and (trained.chunk, trained.name) not in self._deltas:
                self._deltas.add((trained.chunk, trained.name))
                self._record_delta(trained, before[id(trained.master)])
        clock = self._collector.clock
        # A step before any forward initialises the optimizer's state; it trains nothing.
        clock.stepped = clock.stepped or clock.running
        clock.ever_stepped = clock.ever_stepped or clock.running

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

    def _record_main_grads(self) -> None:
        self._gradients.record_portions()
        clock = self._collector.clock
        if self._done == clock.iteration or not self._collector.is_recorded() or not clock.running:
            return
        self._done = clock.iteration
        self._deltas.clear()
        for trained in self._trained():
            gradient = _main_grad(trained.parameter)
            if gradient is not None and trained.owned is not None:
                gradient = trained.owned.of(trained.parameter, gradient)
            if gradient is not None:
                self._record(library.MAIN_GRAD, trained, gradient)

    def _record_norm(self, norm) -> None:
        if not self._collector.is_recorded() or not isinstance(norm, (torch.Tensor, float)):
            return
        iteration, count = self._norms
        count = count if iteration == self._collector.clock.iteration else 0
        self._norms = (self._collector.clock.iteration, count + 1)
        value = norm.detach().reshape(()) if isinstance(norm, torch.Tensor) else torch.tensor(norm)
        self._collector.record_parameter(0, library.SCALAR, f"grad_norm#{count}" if count else "grad_norm", value)

    def _record_params_after(self) -> None:
        for trained in self._trained():
            self._collector.record_parameter(trained.chunk, library.PARAM_AFTER, trained.name, trained.parameter)

    def _trained(self) -> Iterator["Trained"]:
        """Every parameter of the chunks that ran in this iteration."""
        for chunk in self._collector.clock.chunks.values():
            if not chunk.microbatches:
                continue
            for name, parameter in chunk.parameters():
                owned = owned_range(parameter)
                master = getattr(parameter, "main_param", None) if owned is None else owned.master
                if not isinstance(master, torch.Tensor):
                    master = parameter
                yield Trained(chunk.number, name, parameter, master, owned)


class Trained(NamedTuple):
    chunk: int
    name: str
    parameter: torch.nn.Parameter
    master: torch.Tensor  # what the optimizer updates
    owned: Optional[OwnedRange]  # None: the whole parameter


def _main_grad(parameter: torch.nn.Parameter) -> Optional[torch.Tensor]:
    main_grad = getattr(parameter, "main_grad", None)
    if isinstance(main_grad, torch.Tensor):
        return main_grad
    master_grad = getattr(getattr(parameter, "main_param", None), "grad", None)
    return parameter.grad if master_grad is None else master_grad
