"""Where the program draws random numbers: in which calls of modules the state of PyTorch's default generators moves. It
is looked at where a recorded call begins and ends, which takes a microsecond and a half; what moved in between is the
innermost call's. `RandomDraws` in src/base/random_draws.h has the format.

Generators that the program makes for itself, and those of Python and NumPy, are not looked at."""

import ctypes
import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import patches
from .compiled import is_compiling
from .frame import CallStack, Frame
from .library import Kind, Pass
from .names import recordable

_MOST_BYTES = 1 << 17  # of the document
# Of the state of the generator on the host: its seed, how far it is in the numbers that it has made, the first of
# these, and, at its end, a normal number that it keeps for the next call. Two states that have them in common are the
# same.
_HEAD, _TAIL = 48, 40

_Key = tuple[Kind, int, int, int, Pass, str]  # as TensorId, of a module's call


class State(NamedTuple):
    """Of the generators of the host and of the device that the program computes on."""

    host: bytes | None
    device: tuple[int, int] | None  # seed and offset

    def of_those_that_drew(self, later: "State") -> "State | None":
        """None where none did. A device's generator that has another seed, or is further back, was set to another state
        and did not draw."""
        drew_host, drew_device = self.host != later.host, False
        if self.device is not None and later.device is not None:
            drew_device = self.device[0] == later.device[0] and self.device[1] < later.device[1]
        if not (drew_host or drew_device):
            return None
        return State(self.host if drew_host else None, self.device if drew_device else None)


class Draws:
    def __init__(self) -> None:
        self._states: dict[_Key, State] = {}  # in order of time
        self._looked = False

    def install(self, stack: CallStack) -> None:
        """Of functions that set a generator's state, which draws nothing."""
        for owner, name in ((torch, "set_rng_state"), (torch, "manual_seed"), (torch, "seed")):
            function = getattr(owner, name)
            patched = self._setting(function, stack)
            for place in (torch, torch.random):
                if getattr(place, name, None) is function:
                    patches.replace(place, name, patched)

    def _setting(self, function: Callable, stack: CallStack) -> Callable:
        @functools.wraps(function)
        def patched(*args: Any, **kwargs: Any) -> Any:
            if stack.generators is None or is_compiling():
                return function(*args, **kwargs)
            self._look(stack, stack.frames[-1] if stack.frames else None)
            try:
                return function(*args, **kwargs)
            finally:
                stack.generators = _state()

        return patched

    def entered(self, stack: CallStack, frame: Frame) -> None:
        """Before a call, which is not yet on the stack."""
        caller = stack.frames[-1] if stack.frames else None
        self._look(stack, caller)
        if caller is not None and frame.path is not None:
            self._note(Kind.INPUT, frame, caller.drawn_from)

    def left(self, stack: CallStack, frame: Frame) -> None:
        """After a call that has returned."""
        self._look(stack, frame)
        self._note(Kind.OUTPUT, frame, frame.drawn_from)

    def _look(self, stack: CallStack, frame: Frame | None) -> None:
        before, stack.generators = stack.generators, _state()
        if frame is not None and frame.drawn_from is None and before is not None:
            frame.drawn_from = before.of_those_that_drew(stack.generators)

    def _note(self, kind: Kind, frame: Frame, state: State | None) -> None:
        self._looked = True
        if state is not None:
            iteration, microbatch, chunk, *_ = tensor = frame.tensor_id(kind, "")
            self._states.setdefault((kind, iteration, microbatch, chunk, tensor.pass_, tensor.name), state)

    def clear(self) -> None:
        self._states.clear()

    def as_document(self) -> dict:
        """Empty where nobody looked, or where it would be too long."""
        if not self._looked:
            return {}
        document = _document(self._states)
        if len(json.dumps(document)) > _MOST_BYTES:
            firsts: dict[tuple[Kind, str], _Key] = {}
            for key in self._states:
                firsts.setdefault((key[0], key[-1].partition("#")[0]), key)
            document = {**_document({key: self._states[key] for key in firsts.values()}), "cut": True}
        return document if len(json.dumps(document)) <= _MOST_BYTES else {}


def _document(states: dict[_Key, State]) -> dict:
    places: dict[str, int] = {}
    calls = [
        [places.setdefault(recordable(name), len(places)), kind.text, *numbers, pass_.text, _digest(state)]
        for (kind, *numbers, pass_, name), state in states.items()
    ]
    return {"modules": list(places), "calls": calls}


def _digest(state: State) -> int:
    return int.from_bytes(hashlib.blake2b(repr(state).encode(), digest_size=6).digest(), "little")


def _state() -> State:
    host = torch.default_generator.get_state()
    address = host.data_ptr()
    end = address + host.numel() - _TAIL
    return State(ctypes.string_at(address, _HEAD) + ctypes.string_at(end, _TAIL), _state_of_device())


def _state_of_device() -> tuple[int, int] | None:
    """None without CUDA, or where a graph is captured, whose draws are not known."""
    generators = torch.cuda.default_generators  # none before CUDA is initialized
    if not generators or torch.cuda.is_current_stream_capturing():
        return None
    generator = generators[torch.cuda.current_device()]
    if generator.device.type != "cuda":  # programs may put others in their places
        return None
    return generator.initial_seed(), generator.get_offset()
