"""Module calls: names, inputs and outputs, forward and recomputation.

`torch.nn.Module._call_impl` is wrapped rather than hooked by PyTorch's global module hooks. Those do not see keyword
arguments (before 2.3 no forward hook does), run before a module's own hooks (so that an output which such a hook
completes by an all-reduce would be recorded half done), and are not called where forward raises. Outside the
wrapped function a module looks as its caller sees it: arguments before any hook, result after all of them.

A forward that runs while the autograd engine is at work is a recomputation (`torch._C._current_graph_task_id()`)."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.utils import parametrize, stateless

from . import adapters, own_calls, patches
from .adapters import Adapter
from .clock import Chunk, Microbatch, unwrapped
from .collector import Collector
from .compiled import is_compiling
from .data_loading import is_fetching
from .frame import CallStack, Frame
from .gaps import Gaps
from .gradients import Gradients
from .library import Kind, Pass, TensorId
from .masters import TrainedParameter, record_part, trained_parameters
from .members import Member, inputs_of, outputs_of
from .names import name_of_class, plain_class, plain_name
from .perturb import Perturbation
from .recursion import raise_limit, room_at
from .replays import Replays
from .rewrite import Rewriting
from .tensors import has_parameters, in_transform


class Modules:
    """Records the calls of modules, and perturbs or rewrites on the way what the program computes with, if asked to."""

    def __init__(
        self, collector: Collector, gradients: Gradients, perturbation: Perturbation | None, rewriting: Rewriting | None
    ):
        self._collector, self._gradients = collector, gradients
        self._perturbation, self._rewriting = perturbation, rewriting
        self.gaps = Gaps(collector)
        # What forward pre-hooks may still change, until the module that uses it is called: id of a parameter -> what
        # is to be recorded, under each of its names.
        self._unread: dict[int, list[TrainedParameter]] = {}
        self._in_registration = False  # of a parametrization, which PyTorch tries once
        self._in_functional_call = False  # begun inside a transform of torch.func: parameters are others for its time
        self._unperturbed: Frame | None = None  # a call begun there whose arguments are still to be perturbed
        self.stack = CallStack()
        # Records calls without gradients for as long as there are no others; set by start.py. None: nobody does.
        self.without_grad: Any = None
        self.replays: Replays | None = None  # what is recorded once more, where `ttrace run` asks for it

    def install(self) -> None:
        patches.replace(torch.nn.Module, "_call_impl", self._wrap_call(torch.nn.Module._call_impl))
        own_calls.watch(self._wrap_call)
        patches.keep(register_module_module_registration_hook(self._count_registration))
        patches.replace(stateless, "_functional_call", self._wrap_functional_call(stateless._functional_call))
        registration = parametrize.ParametrizationList
        patches.replace(registration, "__init__", self._wrap_registration(registration.__init__))
        self._collector.draws.install(self.stack)
        adapters.observe_framework_calls(self.observe)

    def _wrap_call(self, call_impl: Callable) -> Callable:
        observe, stack = self.observe, self.stack

        def _call_impl(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or torch._C._get_tracing_state():  # of torch.jit.trace, which runs it to look at it
                return call_impl(module, *args, **kwargs)
            depth, room = stack.depth, room_at(stack.depth)
            if room:
                raise_limit(room)
            try:
                stack.depth = depth + 1
                return observe(functools.partial(call_impl, module), module, args, kwargs)
            finally:
                stack.depth = depth
                if room:
                    raise_limit(-room)

        return _call_impl

    def _wrap_functional_call(self, functional_call: Callable) -> Callable:
        @functools.wraps(functional_call)
        def patched(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._in_functional_call or self.stack.frames or not in_transform():
                return functional_call(module, *args, **kwargs)
            self._collector.safely(self._begin_in_transform, module)
            self._in_functional_call = True
            try:
                return functional_call(module, *args, **kwargs)
            finally:
                self._in_functional_call = False

        return patched

    def _wrap_registration(self, register: Callable) -> Callable:
        """PyTorch calls a parametrization once where it is registered, to look at the shape of what it makes: no call
        of a model, and none that a backward follows."""

        @functools.wraps(register)
        def patched(*args: Any, **kwargs: Any) -> None:
            before, self._in_registration = self._in_registration, True
            try:
                register(*args, **kwargs)
            finally:
                self._in_registration = before

        return patched

    def _count_registration(self, *_: Any) -> None:
        self._collector.clock.registered += 1

    def observe(self, call: Callable, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
        """call(*args, **kwargs), which calls `module`."""
        if self.without_grad is not None and self.without_grad.takes():
            observed = functools.partial(self._observe_as, call, module)
            return self.without_grad.observe(observed, module, args, kwargs)
        return self._observe(call, module, args, kwargs)

    def _observe_as(self, call: Callable, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self._observe(call, module, args, kwargs)

    def _observe(self, call: Callable, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
        collector, frames = self._collector, self.stack.frames
        if not collector.active:
            return call(*args, **kwargs)
        if frames and frames[-1] is None:
            if frames[0] is None and _makes_graph_in_backward():
                # Solvers have modules of their own around it.
                args, kwargs = collector.safely(self._begin_in_backward, module, args, kwargs) or (args, kwargs)
            return call(*args, **kwargs)
        begun = collector.safely(self._begin_call, module, args, kwargs)
        if self.replays is not None and not frames:
            successor = self.replays.at_call(args, kwargs)
            if successor is not None:
                return successor.observe(call, module, args, kwargs)
        frame, inside, args, kwargs = begun or (None, None, args, kwargs)
        named = frame is not None and frame.path is not None
        depth, entered = len(frames), False
        try:
            frames.append(inside)
            entered = depth == 0 and collector.threads.enter()
            result = call(*args, **kwargs)
        except BaseException as error:
            self.stack.generators = None
            if named and frame.pass_ == Pass.FORWARD:  # checkpointing may end a recomputation by an exception
                collector.safely(self.gaps.raised, frame, error)
            raise
        finally:
            del frames[depth:]
            if entered:
                collector.threads.leave()
            if self._unread and not frames:
                collector.safely(self._read_parameters_left)
            if not frames and collector.has_late_reads():
                collector.safely(collector.finish_late_reads)
        if named:
            returned = collector.safely(self._record_outputs, frame, module, args, kwargs, result)
            if returned is not None:
                (result,) = returned
        return result

    def current_frame(self) -> Frame | None:
        """The call that the program is in, or a frame without a path outside of all; None where what it does just now
        is not recorded."""
        frames = self.stack.frames
        if frames:
            return frames[-1] if frames[-1] and frames[-1].microbatch.recorded else None
        microbatch = self._collector.clock.microbatch_of_parameterless(self._collector.is_recorded())
        is_wanted = microbatch.recorded and self._collector.is_wanted()
        return Frame(microbatch, Pass.FORWARD, microbatch.forward_calls, {}, None) if is_wanted else None

    def record_as_input(self, member: str, make: Callable[[], torch.Tensor | None]) -> None:
        """What `make` returns, unless it is None, of the module in progress, which did not get it from its caller."""
        self._collector.safely(self._record_inside, Kind.INPUT, Kind.GRAD_INPUT, member, make)

    def record_as_output(self, member: str, make: Callable[[], torch.Tensor | None]) -> None:
        """The same of the module in progress, which does not return it."""
        self._collector.safely(self._record_inside, Kind.OUTPUT, Kind.GRAD_OUTPUT, member, make)

    def _record_inside(self, kind: Kind, gradient: Kind, member: str, make: Callable) -> None:
        frame = self.current_frame()
        tensor = make() if frame is not None and frame.path is not None else None
        if tensor is not None:
            self._record_all(frame, kind, [(member, tensor)])
            self._hook_all(frame, gradient, [(member, tensor)])

    def _begin_call(
        self, module: torch.nn.Module, args: tuple, kwargs: dict
    ) -> tuple[Frame | None, Frame | None, tuple, dict]:
        """Returns the call's frame, the one for the calls inside, and the arguments that the module is to be called
        with."""
        frame = inside = self._enter(module)
        if frame is None and not self.stack.frames and _makes_graph_in_backward():
            args, kwargs = self._begin_in_backward(module, args, kwargs)
        if self._unperturbed is not None and self._perturbation is not None:
            begun, self._unperturbed = self._unperturbed, None
            args, kwargs = self._perturbation.perturb_in_transform(begun, args, kwargs)
        if frame is not None and frame.path is not None:
            if self.gaps.hides_inside(frame, module):
                inside = None
            if adapters.any_says(Adapter.exchanges_tokens, module):
                self._gradients.leave_out(frame, module)
            args, kwargs = self._record_inputs(frame, args, kwargs)
        if frame is not None and frame.microbatch.recorded:
            self._collector.draws.entered(self.stack, frame)
        return frame, inside, args, kwargs

    # Which call this is.

    def _enter(self, module: torch.nn.Module) -> Frame | None:
        if in_transform():
            if self.stack.frames:
                self.gaps.inside_transform(module, None)
            elif not self._in_functional_call:
                self._begin_in_transform(module)
            return None
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
            is_first = frame.chunk is not None and frame.microbatch.is_first and not self._collector.no_grad
            if is_first and plain_class(type(module)) is not type(module):
                self._gradients.hook_gathered_parameters(frame.chunk, module)
            if self._unread and any(id(each) in self._unread for each in module._parameters.values()):
                self._read_parameters_when_hooks_have_run(frame.chunk, module)
        return frame

    def _begin_in_backward(self, module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Of a model that a function of the program calls without gradients, and with them in its backward, as the
        adjoint of an ODE does, the parameters alone are seen. Returns the arguments that it is to be called with."""
        clock = self._collector.clock
        chunk = clock.chunk_of(module)
        goes_on = chunk is not None and chunk.microbatches and not clock.stepped
        if not has_parameters(module) or goes_on or (chunk is not None and not chunk.is_called_in_backward):
            return args, kwargs
        frame = self._outermost_call(module)
        chunk = clock.chunk_of(module)
        if chunk is not None:
            chunk.is_called_in_backward = True
            self.gaps.in_backward(module, chunk)
        if frame is None or self._perturbation is None:
            return args, kwargs
        self._name(frame, None, module)
        return self._perturbation.perturb_in_backward(frame, args, kwargs)

    def _begin_in_transform(self, module: torch.nn.Module) -> None:
        """Of a call by the program itself inside a transform of torch.func, the model's parameters alone are seen."""
        with torch._C._DisableFuncTorch():
            frame = self._outermost_call(module)
            if frame is not None and not frame.microbatch.forward_calls:
                frame.microbatch.in_transform = True
            if frame is not None and frame.microbatch.recorded:
                self.gaps.inside_transform(module, frame.chunk)
            if frame is not None and self._perturbation is not None:
                self._name(frame, None, module)
                self._unperturbed = frame

    def _inner_call(self, parent: Frame, in_backward: bool) -> Frame:
        microbatch, pass_, call_counts = parent.microbatch, parent.pass_, parent.call_counts
        if pass_ == Pass.FORWARD and in_backward:  # backward within forward
            pass_, call_counts = Pass.RECOMPUTE, microbatch.recomputed_calls
        elif pass_ == Pass.FORWARD and not torch.is_grad_enabled():
            microbatch.reentrant = True
        return Frame(microbatch, pass_, call_counts, parent.names, parent.chunk)

    def _outermost_call(self, module: torch.nn.Module) -> Frame | None:
        collector, clock = self._collector, self._collector.clock
        if self._in_registration or adapters.any_says(Adapter.is_rehearsal) or self.gaps.is_replica(module):
            return None
        is_wanted, is_model = collector.is_wanted(), has_parameters(module)
        if not is_model and is_fetching():
            return None
        if not collector.threads.trains():
            microbatch = clock.microbatch_of_part(module) if is_wanted else None
            if microbatch is not None:  # a model may call parts of itself in threads of its own
                return self._outermost_call_of_part(module, microbatch)
            if not is_wanted or not self._begin_in_thread(module, is_model):
                return None
        elif is_wanted and is_model:
            if collector.leave_worker_alone():
                return None
            collector.threads.begin(is_known=True)
        collector.before_outermost_call(is_wanted)
        if not collector.active:
            return None
        if not is_wanted:
            if not collector.no_grad:
                self._see_call_without_grad(module, is_model)
            return None
        if is_model and self.without_grad is not None:
            self.without_grad.forget()
            self.without_grad = None
        recorded = collector.is_recorded()
        if not is_model:
            return self._outermost_call_without_parameters(module) if recorded else None
        microbatch = clock.microbatch_of_part(module)
        if microbatch is not None:
            return self._outermost_call_of_part(module, microbatch)
        microbatch = clock.begin_microbatch(module, recorded)
        chunk = microbatch.chunk
        for act in collector.on_microbatch:
            act(chunk)
        if self._rewriting is not None and microbatch.is_first:
            self._rewriting.set_parameters(chunk)
        if not recorded and self._perturbation is None:
            return None
        if microbatch.is_first:
            self._begin_chunk(chunk, recorded)
        elif recorded and clock.stepped:
            # The iteration goes on after a step: a model may have been frozen while another one trained.
            self._hook_parameters(chunk)
        return Frame(microbatch, Pass.FORWARD, microbatch.forward_calls, chunk.names, chunk)

    def _see_call_without_grad(self, module: torch.nn.Module, is_model: bool) -> None:
        self.gaps.without_grad(module)
        if is_model:
            if self._collector.is_recorded():
                self._collector.configurations.saw_without_grad(unwrapped(module))
            for act in self._collector.on_call_without_grad:
                act(module)

    def _begin_in_thread(self, module: torch.nn.Module, is_model: bool) -> bool:
        """Whether the call of `module` in a thread that has not trained so far is to be recorded."""
        threads, before = self._collector.threads, self._collector.threads.name
        is_known = id(module) in self._collector.clock.chunks
        begins = is_model and threads.begin(is_known)
        if not begins or not is_known:
            self.gaps.in_several_threads(module, before, begins)
        return begins

    def _outermost_call_without_parameters(self, module: torch.nn.Module) -> Frame:
        """Such as a loss, which is no chunk of the model and goes by the name of its class."""
        name = plain_name(type(module))
        names = {id(inner): f"{name}.{path}" if path else name for path, inner in module.named_modules()}
        microbatch = self._collector.clock.microbatch_of_parameterless(True, name, module)
        chunk = 0 if microbatch.chunk is None else microbatch.chunk.number
        self._collector.configurations.saw_alone(chunk, module, names)
        return Frame(microbatch, Pass.FORWARD, microbatch.forward_calls, names, None)

    def _outermost_call_of_part(self, module: torch.nn.Module, microbatch: Microbatch) -> Frame | None:
        """`module` belongs to the model that ran in `microbatch`."""
        if not microbatch.recorded and self._perturbation is None:
            return None
        chunk = microbatch.chunk
        microbatch.called_alone.add(chunk.names[id(module)])
        return Frame(microbatch, Pass.FORWARD, microbatch.forward_calls, chunk.names, chunk)

    def _begin_chunk(self, chunk: Chunk, recorded: bool) -> None:
        """Before the chunk's first call in this iteration."""
        collector = self._collector
        collector.begin_chunk(chunk)
        if not recorded:
            return
        for act in collector.on_first_call:
            act(chunk)
        chunk.remember_ties()
        self._hook_parameters(chunk)
        late = {
            id(parameter)
            for module in chunk.base.modules()
            if module._forward_pre_hooks and plain_class(type(module)) is type(module)
            for parameter in module._parameters.values()
        }
        for trained in trained_parameters(chunk):
            if id(trained.share.held) in late and trained.share.held_range is None:
                self._unread.setdefault(id(trained.share.held), []).append(trained)
            else:
                record_part(collector, trained, Kind.PARAM, trained.share.held, trained.share.held_range)

    def _hook_parameters(self, chunk: Chunk) -> None:
        if not self._collector.no_grad:
            self._gradients.hook_parameters(chunk)

    def _read_parameters_when_hooks_have_run(self, chunk: Chunk, module: torch.nn.Module) -> None:
        """Megatron-core's hooks gather what other ranks have made of parameters in the last step, those of lazy modules
        make the parameters. The hook that is registered here, at the call, comes after all others."""

        def read(*_: Any) -> None:
            handle.remove()
            for parameter in module._parameters.values():
                self._collector.safely(self._read_parameter, id(parameter))
            self._collector.safely(self._hook_parameters, chunk)

        handle = module.register_forward_pre_hook(read)

    def _read_parameter(self, key: int) -> None:
        for trained in self._unread.pop(key, []):
            record_part(self._collector, trained, Kind.PARAM, trained.share.held, None)

    def _read_parameters_left(self) -> None:
        """Those whose modules were not called, once a first micro-batch's forward is over."""
        for key in list(self._unread):
            self._read_parameter(key)

    def _recomputation_of(self, module: torch.nn.Module) -> Frame | None:
        """By a checkpoint function that checkpoints.py has not wrapped (Megatron-LM has its own): the micro-batch is
        that of the backward in progress, which the gradient hooks that fired before have told."""
        chunk = self._collector.clock.chunk_of(module)
        if not torch.is_grad_enabled():
            return None
        if chunk is None or chunk.is_called_in_backward:
            return None
        if chunk.in_backward is None:
            if self._collector.is_recorded():
                self._collector.warn(
                    f"not traceable: recomputation of '{chunk.names[id(module)]}', whose forward was not seen"
                )
            return None
        microbatch = chunk.in_backward
        return Frame(microbatch, Pass.RECOMPUTE, microbatch.recomputed_calls, chunk.names, chunk)

    def _name(self, frame: Frame, parent: Frame | None, module: torch.nn.Module) -> None:
        key = id(module)
        if key not in frame.names and frame.chunk is not None:
            frame.chunk.look_for(module, self._collector.clock.registered)
            frame.names = frame.chunk.names
        if key in frame.names:
            path = frame.names[key]
        else:  # called in a module, but not registered in it
            path = ".".join(filter(None, [parent.path if parent else None, plain_name(type(module))]))
        if path is None:
            return
        frame.path, frame.call_suffix = path, frame.call_counts.next_suffix(path)
        plain = plain_class(type(module._orig_mod if "_orig_mod" in module._modules else module))
        frame.module_class = name_of_class(plain)
        if frame.microbatch.recorded and frame.pass_ == Pass.FORWARD:
            self._collector.sources.saw(path, frame.module_class, plain)

    # What goes in and comes out.

    def _record_inputs(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Returns the arguments that the module is to be called with."""
        if self._perturbation is not None:
            args, kwargs = self._perturbation.perturb_inputs(frame, args, kwargs)
        if not frame.microbatch.recorded:
            return args, kwargs
        if self._rewriting is not None:
            args, kwargs = self._rewriting.rewrite_integers(frame, args, kwargs)
        members = inputs_of(args, kwargs)
        if frame.microbatch.number == 0:
            self._collector.open().look_for_autocast()
        self.gaps.look_into(frame, Kind.INPUT, args, kwargs)
        self._record_all(frame, Kind.INPUT, members)
        self._hook_all(frame, Kind.GRAD_INPUT, members)
        if self._rewriting is not None:  # once recorded, what the program has computed goes no further
            args, kwargs = self._rewriting.rewrite_inputs(frame, args, kwargs)
        return args, kwargs

    def _record_outputs(
        self, frame: Frame, module: torch.nn.Module, args: tuple, kwargs: dict, result: Any
    ) -> tuple[Any]:
        """Returns, in a tuple of one, what the module is to return."""
        recorded, rewriting = frame.microbatch.recorded, self._rewriting
        if recorded:
            self._collector.draws.left(self.stack, frame)
        if rewriting is not None and recorded:
            computed, result = rewriting.rewrite_outputs(frame, result)
        else:
            computed = outputs_of(result)
        returned = result
        if self._perturbation is not None:
            returned = self._perturbation.perturb_outputs(frame, args, kwargs, result)
        if recorded:
            self.gaps.look_into(frame, Kind.OUTPUT, result)
            self._record_all(frame, Kind.OUTPUT, computed if returned is result else outputs_of(returned))
            for choice in adapters.every(Adapter.router_choice, module, args, kwargs, result):
                self._record_all(frame, Kind.OUTPUT, choice)
            # Of what the module computed, also where it is perturbed: it may have used that itself, and nobody else.
            replacement = rewriting.gradient if rewriting is not None else None
            self._hook_all(frame, Kind.GRAD_OUTPUT, computed, replacement)
        return (returned,)

    def _record_all(self, frame: Frame, kind: Kind, members: list[Member]) -> None:
        for member, tensor in members:
            self._collector.record(frame.tensor_id(kind, member), tensor, module_class=frame.module_class)

    def _hook_all(
        self,
        frame: Frame,
        kind: Kind,
        members: list[Member],
        replacement: Callable[[TensorId, torch.Tensor], torch.Tensor | None] | None = None,
    ) -> None:
        for member, tensor in members if not self._collector.no_grad else ():
            if self.stack.is_thrown_away(tensor):
                continue
            tensor_id = frame.forward_id(kind, member)
            self._gradients.hook(frame.microbatch, tensor_id, tensor, frame.module_class, replacement)


def _makes_graph_in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled()
