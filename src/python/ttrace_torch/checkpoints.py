"""Activation checkpointing by `torch.utils.checkpoint.checkpoint`: the function that it runs twice is wrapped, so
that the modules of the second run get the micro-batch and the call numbers of the first. What a gradient hook could
tell of the backward in progress is not enough where a module is called in two checkpointed parts: their second runs
come in reverse order."""

import functools
from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint

from .clock import CallCounts
from .collector import Collector
from .compiled import is_compiling
from .frame import CallStack, Frame
from .library import Pass


def install(collector: Collector, stack: CallStack) -> None:
    checkpoint = torch.utils.checkpoint.checkpoint

    @functools.wraps(checkpoint)
    def patched(function: Callable, *args: Any, **kwargs: Any) -> Any:
        frames = stack.frames
        if not collector.active or not frames or is_compiling():
            return checkpoint(function, *args, **kwargs)
        return checkpoint(_run_twice(function, frames[-1], stack), *args, **kwargs)

    torch.utils.checkpoint.checkpoint = patched


def _run_twice(function: Callable, parent: Frame | None, stack: CallStack) -> Callable:
    call_counts = parent.call_counts.copy() if parent is not None else CallCounts()
    runs = 0

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == 1:
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
