"""What a device has that a program may use: kernels to choose from, streams, graphs, and the host's memory."""

import argparse
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend

ATTENTION = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
Batches = list[tuple[Tensor, Tensor]]


def make_repeatable() -> None:
    """Of cuBLAS CUBLAS_WORKSPACE_CONFIG says it, from the start of the process."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # nobody reads it


def saved_activations(arguments: argparse.Namespace) -> contextlib.AbstractContextManager:
    """What autograd saves for the backward waits in the host's memory."""
    if arguments.offload != "activations":
        return contextlib.nullcontext()
    return torch.autograd.graph.save_on_cpu(pin_memory=arguments.device != "cpu")


def on_side_stream(module: nn.Module, device: str) -> None:
    """Has `module` run on a stream of its own."""
    streams, forward = getattr(torch, device), module.forward
    side = streams.Stream()

    @functools.wraps(forward)
    def beside(hidden: Tensor) -> Tensor:
        main = streams.current_stream()
        wait_for(side, main)
        with streams.stream(side):
            result = forward(hidden)
        wait_for(main, side)
        if hidden.is_cuda:  # the memory of each is used by the other stream, too
            hidden.record_stream(side)
            result.record_stream(main)
        return result

    module.forward = beside


def wait_for(stream: Any, other: Any) -> None:
    """Has `stream` wait for what `other` has to do by now."""
    stream.wait_stream(other)


def captured(step: Callable[[Batches], tuple[Tensor, Tensor]]) -> Callable[[Batches], tuple[Tensor, Tensor]]:
    """`step`, called the first time as it is, which warms up what it uses; from then on a CUDA graph of it."""
    graph: torch.cuda.CUDAGraph | None = None
    given, returned = [], None  # what the graph reads, and where its results are
    is_warm = False

    def take(batches: Batches) -> tuple[Tensor, Tensor]:
        nonlocal graph, given, returned, is_warm
        if not is_warm:
            is_warm = True
            return _on_another_stream(step, batches)
        if graph is None:
            given, graph = batches, torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                returned = step(given)
        for tensors, new in zip(given, batches, strict=True):
            for tensor, values in zip(tensors, new, strict=True):
                tensor.copy_(values)
        graph.replay()
        return returned

    return take


def _on_another_stream(step: Callable, batches: Batches) -> Any:
    """As what comes before a capture must run."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = step(batches)
    torch.cuda.current_stream().wait_stream(stream)
    return result
