"""Module calls: names, inputs and outputs, forward and recomputation.

`torch.nn.Module._call_impl` is wrapped rather than hooked by PyTorch's global module hooks. Those do not see keyword
arguments (before 2.3 no forward hook does), run before a module's own hooks (so that an output which such a hook
completes by an all-reduce would be recorded half done), and are not called where forward raises. Outside the
wrapped function a module looks as its caller sees it: arguments before any hook, result after all of them.

A forward that runs while the autograd engine is at work is a recomputation (`torch._C._current_graph_task_id()`)."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from . import adapters, library
from .clock import Chunk, Microbatch
from .collector import Collector
from .compiled import is_compiling
from .gaps import Gaps
from .gradients import Gradients
from .tensors import inputs_of, outputs_of


class Frame:
    """A module call in progress."""

    __slots__ = ("microbatch", "pass_", "calls", "names", "chunk", "path", "call", "module_class", "given")

    def __init__(
        self,
        microbatch: Microbatch,
        pass_: int,
        calls: dict[str, int],
        names: dict[int, str | None],
        chunk: Chunk | None,
    ):
        self.microbatch, self.pass_, self.calls, self.names, self.chunk = microbatch, pass_, calls, names, chunk
        self.path: str | None = None  # None: not recorded
        self.call = ""  # "#1" for the second call
        self.module_class = ""
        self.given: list = []  # in place of the program's tensors: see rewrite.py

    def tensor_name(self, member: str) -> str:
        """`member` as in `inputs_of`."""
        return f"{self.path}{member}{self.call}"


class _Stack(threading.local):
    """Of the module calls of this thread; None stands for one whose inside is of no interest."""

    def __init__(self) -> None:
        self.frames: list[Frame | None] = []


class Modules:
    def __init__(self, collector: Collector, gradients: Gradients, perturbation, rewriting):
        self._collector, self._gradients = collector, gradients
        self._perturbation, self._rewriting = perturbation, rewriting
        self._gaps = Gaps(collector)
        self.stack = _Stack()

    def install(self) -> None:
        call_impl, observe = torch.nn.Module._call_impl, self.observe

        def _call_impl(module, *args, **kwargs):
            if is_compiling():
                return call_impl(module, *args, **kwargs)
            return observe(functools.partial(call_impl, module), module, args, kwargs)

        torch.nn.Module._call_impl = _call_impl

    def observe(self, call: Callable, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
        """call(*args, **kwargs), which calls `module`."""
        collector, frames = self._collector, self.stack.frames
        if not collector.active or (frames and frames[-1] is None):
            return call(*args, **kwargs)
        frame = collector.safely(self._enter, module)
        named = frame is not None and frame.path is not None
        hidden = named and collector.safely(self._gaps.hides_inside, frame.path, module)
        if named:
            changed = collector.safely(self._record_inputs, frame, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        frames.append(None if hidden else frame)
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            if named and frame.pass_ == library.FORWARD:  # checkpointing may end a recomputation by an exception
                collector.safely(self._gaps.raised, frame.path, error)
            raise
        finally:
            frames.pop()
        if named:
            changed = collector.safely(self._record_outputs, frame, args, kwargs, result)
            if changed is not None:
                result = changed[0]
        return result

    def place_of_program(self) -> tuple[Microbatch, int, dict[str, int]] | None:
        """Micro-batch, pass and calls so far of what the program does just now; None where that is not recorded."""
        frames = self.stack.frames
        if frames:
            frame = frames[-1]
            return (frame.microbatch, frame.pass_, frame.calls) if frame and frame.microbatch.recorded else None
        microbatch = self._collector.clock.for_parameterless(self._collector.is_recorded())
        in_training = microbatch.recorded and torch.is_grad_enabled()
        return (microbatch, library.FORWARD, microbatch.calls) if in_training else None

    # Which call this is.

    def _enter(self, module: torch.nn.Module) -> Frame | None:
        in_backward = torch._C._current_graph_task_id() != -1
        parent = self.stack.frames[-1] if self.stack.frames else None
        if parent is not None:
            frame = self._inner_call(parent, in_backward)
        elif in_backward:
            frame = self._recomputation_of(module)
        else:
            frame = self._outermost_call(module)
        if frame is not None:
            self._name(frame, parent, module)
            if frame.chunk is not None and frame.microbatch.number == 0 and _plain_class(module) is not type(module):
                self._gradients.hook_gathered_parameters(frame.chunk, module)
        return frame

    def _inner_call(self, parent: Frame, in_backward: bool) -> Frame:
        microbatch, calls, pass_ = parent.microbatch, parent.calls, parent.pass_
        if pass_ == library.FORWARD and in_backward:  # backward within forward
            pass_, calls = library.RECOMPUTE, microbatch.recomputed
        elif pass_ == library.FORWARD and not torch.is_grad_enabled():
            microbatch.reentrant = True
        return Frame(microbatch, pass_, calls, parent.names, parent.chunk)

    def _outermost_call(self, module: torch.nn.Module) -> Frame | None:
        collector, clock = self._collector, self._collector.clock
        if adapters.is_rehearsal() or self._gaps.is_replica(module):
            return None
        in_grad_mode = torch.is_grad_enabled()
        collector.before_outermost_call(in_grad_mode)
        if not collector.active:
            return None
        if not in_grad_mode:
            self._gaps.without_grad(module)
            return None
        recorded = collector.is_recorded()
        if next(module.parameters(), None) is None:
            if not recorded:
                return None
            name = type(module).__name__
            names = {id(inner): f"{name}.{path}" if path else name for path, inner in module.named_modules()}
            microbatch = clock.for_parameterless(recorded)
            return Frame(microbatch, library.FORWARD, microbatch.calls, names, None)
        microbatch = clock.begin_microbatch(module, recorded)
        if self._rewriting is not None and microbatch.number == 0:
            self._rewriting.set_parameters(microbatch.owner)
        if not recorded and self._perturbation is None:
            return None
        if microbatch.number == 0:
            self._begin_chunk(microbatch.owner, recorded)
        return Frame(microbatch, library.FORWARD, microbatch.calls, microbatch.owner.names, microbatch.owner)

    def _begin_chunk(self, chunk: Chunk, recorded: bool) -> None:
        """Before the chunk's first call in this iteration."""
        collector = self._collector
        collector.begin_model(chunk.root)
        if not recorded:
            return
        self._gradients.hook_parameters(chunk)
        for name, parameter in chunk.parameters():
            collector.record_parameter(chunk.number, library.PARAM, name, parameter)

    def _recomputation_of(self, module: torch.nn.Module) -> Frame | None:
        """Of a checkpoint function that we have not wrapped (Megatron-LM has its own): the micro-batch is that of
        the backward in progress, which the gradient hooks that fired before have told."""
        chunk = self._collector.clock.chunk_of(module)
        if chunk is None or not torch.is_grad_enabled():
            return None
        if chunk.in_backward is None:
            if self._collector.is_recorded():
                self._collector.warn(
                    f"not traceable: recomputation of '{chunk.names[id(module)]}', whose forward was not seen"
                )
            return None
        return Frame(chunk.in_backward, library.RECOMPUTE, chunk.in_backward.recomputed, chunk.names, chunk)

    def _name(self, frame: Frame, parent: Frame | None, module: torch.nn.Module) -> None:
        key = id(module)
        if key not in frame.names and frame.chunk is not None:
            frame.chunk.find_names()  # a module that was added after the first call
            frame.names = frame.chunk.names
        if key in frame.names:
            path = frame.names[key]
        else:  # called in a module, but not registered in it
            path = ".".join(filter(None, [parent.path if parent else None, type(module).__name__]))
        if path is None:
            return
        call = frame.calls.get(path, 0)
        frame.calls[path] = call + 1
        frame.path, frame.call = path, f"#{call}" if call else ""
        plain = _plain_class(getattr(module, "_orig_mod", module))
        frame.module_class = f"{plain.__module__}.{plain.__qualname__}"

    # What goes in and comes out.

    def _record_inputs(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        changed = None
        if self._perturbation is not None:
            changed = self._perturbation.of_inputs(frame, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        if frame.microbatch.recorded:
            if self._rewriting is not None:
                changed = self._rewriting.of_program(frame, args, kwargs) or changed
                args, kwargs = changed or (args, kwargs)
            found = inputs_of(args, kwargs)
            self._gaps.look_into(frame.path, "input", args, kwargs)
            self._record_all(frame, library.INPUT, found)
            self._hook_all(frame, library.GRAD_INPUT, found)
            if self._rewriting is not None:  # once recorded, what the program has computed goes no further
                changed = self._rewriting.of_inputs(frame, args, kwargs) or changed
        return changed

    def _record_outputs(self, frame: Frame, args: tuple, kwargs: dict, result: Any) -> tuple[Any] | None:
        found, changed, replacement = outputs_of(result), None, None
        if self._perturbation is not None:
            changed = self._perturbation.of_outputs(frame, args, kwargs, result)
        if self._rewriting is not None and frame.microbatch.recorded:
            found, changed = self._rewriting.of_outputs(frame, result)
            replacement = self._rewriting.gradient
        if frame.microbatch.recorded:
            self._gaps.look_into(frame.path, "output", result)
            self._record_all(frame, library.OUTPUT, found if changed is None else outputs_of(changed[0]))
            # Of what the module computed, also where it is perturbed: it may have used that itself, and nobody else.
            self._hook_all(frame, library.GRAD_OUTPUT, found, replacement)
        return changed

    def _record_all(self, frame: Frame, kind: int, found: list[tuple[str, torch.Tensor]]) -> None:
        for member, tensor in found:
            name = frame.tensor_name(member)
            self._collector.record(frame.microbatch, frame.pass_, kind, name, frame.module_class, tensor)

    def _hook_all(
        self, frame: Frame, kind: int, found: list[tuple[str, torch.Tensor]], replacement: Callable | None = None
    ) -> None:
        """`replacement(micro-batch, kind, name, gradient)`: what backward is to go on with, or None."""
        for member, tensor in found:
            identity = (frame.microbatch, kind, frame.tensor_name(member))
            instead = None if replacement is None else functools.partial(replacement, *identity)
            self._gradients.hook(*identity, frame.module_class, tensor, instead)


def _plain_class(module: torch.nn.Module) -> type:
    """The class as the program wrote it: `fully_shard` turns it into one derived from FSDPModule and it."""
    classes = type(module).__mro__
    names = [base.__name__ for base in classes]
    return classes[names.index("FSDPModule") + 1] if "FSDPModule" in names else classes[0]
