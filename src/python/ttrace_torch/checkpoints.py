"""Activation checkpointing by `torch.utils.checkpoint.checkpoint`: the function that it runs twice is wrapped, so
that the modules of the second run get the micro-batch and the call numbers of the first. What a gradient hook could
tell of the backward in progress is not enough where a module is called in two checkpointed parts: their second runs
come in reverse order."""

import functools

import torch.utils.checkpoint

from . import library
from .collector import Collector
from .compiled import is_compiling
from .modules import Frame, Modules


def install(collector: Collector, modules: Modules) -> None:
    checkpoint = torch.utils.checkpoint.checkpoint

    @functools.wraps(checkpoint)
    def patched(function, *args, **kwargs):
        frames = modules.stack.frames
        if not collector.active or not frames or is_compiling():
            return checkpoint(function, *args, **kwargs)
        return checkpoint(_run_twice(function, frames[-1], modules), *args, **kwargs)

    torch.utils.checkpoint.checkpoint = patched


def _run_twice(function, parent: Frame | None, modules: Modules):
    first_calls = dict(parent.calls) if parent is not None else {}
    runs = 0

    def run(*args, **kwargs):
        nonlocal runs
        runs += 1
        if runs == 1:
            return function(*args, **kwargs)
        again = None
        if parent is not None:
            again = Frame(parent.microbatch, library.RECOMPUTE, dict(first_calls), parent.names, parent.chunk)
            again.path = parent.path
        outer, modules.stack.frames = modules.stack.frames, [again]
        try:
            return function(*args, **kwargs)
        finally:
            modules.stack.frames = outer

    return run
