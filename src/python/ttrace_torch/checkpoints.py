"""Activation checkpointing by `torch.utils.checkpoint.checkpoint`, or by a framework's own function that takes what is
to run twice as its first argument: that is wrapped, so that the modules of the second run get the micro-batch and the
call numbers of the first. What a gradient hook could tell of the backward in progress is not enough where a module is
called in two checkpointed parts: their second runs come in reverse order.

Where the first run is without grad, what it computes with grad all the same (Megatron-core adds biases and residuals
so) is in a graph that is thrown away: the tensors of the second run are those that gradients come to."""

import functools
from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint

from . import adapters, patches
from .clock import CallCounts
from .collector import Collector
from .compiled import is_compiling
from .frame import CallStack, Frame
from .library import Pass


def install(collector: Collector, stack: CallStack) -> None:
    checkpoint = torch.utils.checkpoint
    patches.replace(checkpoint, "checkpoint", _observed(checkpoint.checkpoint, collector, stack))


def install_adapters(collector: Collector, stack: CallStack) -> None:
    for function in adapters.functions("checkpoints"):
        function.wrap(lambda checkpoint: _observed(checkpoint, collector, stack))


def _observed(checkpoint: Callable, collector: Collector, stack: CallStack) -> Callable:
    @functools.wraps(checkpoint)
    def patched(function: Callable, *args: Any, **kwargs: Any) -> Any:
        frames = stack.frames
        if not collector.active or not frames or is_compiling():
            return checkpoint(function, *args, **kwargs)
        return checkpoint(_run_twice(function, frames[-1], stack), *args, **kwargs)

    return patched


def _run_twice(function: Callable, parent: Frame | None, stack: CallStack) -> Callable:
    call_counts = parent.call_counts.copy() if parent is not None else CallCounts()
    runs = 0

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == 1:
            with stack.first_run():
                return function(*args, **kwargs)
        again = None
        if parent is not None:
            again = Frame(
                parent.microbatch, Pass.RECOMPUTE, call_counts.copy(), parent.names, parent.chunk, parent.path
            )
        outer, stack.frames = stack.frames, [again]
        try:
            return function(*args, **kwargs)
        finally:
            stack.frames = outer

    return run
