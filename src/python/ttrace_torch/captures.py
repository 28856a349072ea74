"""CUDA graphs. While one is captured nothing can be read, and whatever waits for the device ends the capture, and with
it the program. What a step has left is read when the next iteration begins; where that would be in a capture, as of a
step that is captured after one that warmed up, it is read before the capture begins."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import patches
from .collector import Collector


def install(collector: Collector) -> None:
    patches.replace(torch.cuda.CUDAGraph, "capture_begin", _observed(torch.cuda.CUDAGraph.capture_begin, collector))


def _observed(begin: Callable, collector: Collector) -> Callable:
    @functools.wraps(begin)
    def patched(*args: Any, **kwargs: Any) -> Any:
        collector.safely(lambda: collector.before_outermost_call(collector.is_wanted()))
        return begin(*args, **kwargs)

    return patched
