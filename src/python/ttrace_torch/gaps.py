"""What the recording of modules does not see. A warning names it, and so does the trace: a gap that nobody is told of
would pass for agreement, or for a tensor that the program lost. What cannot be recorded of a tensor that was seen,
`to_host` says; torch.compile has compiled.py."""

import threading
from typing import Any

import torch

from . import adapters
from .adapters import Adapter
from .clock import Chunk
from .collector import Collector
from .compiled import compiler_of
from .frame import Frame
from .library import Kind
from .members import is_plainly_seen, unseen_in
from .names import plain_name
from .not_seen import ACTIVATIONS
from .problems import listed
from .tensors import INSIDE_BACKWARD, INSIDE_TRANSFORM, has_parameters


class Gaps:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._without_grad: dict[int, str] = {}  # id of a module -> its class; of outermost calls
        self._unknown: set[type] = set()  # classes that may hold tensors
        self._experts: set[str] = set()  # classes of experts that were named
        self._hidden: list[str] = []  # modules whose inside is not recorded
        self._hidden_calls: list[str] = []  # why modules were called unseen in this iteration, nobody knows which
        collector.on_iteration_end.append(self._check)

    def look_into(self, frame: Frame, side: Kind, *values: Any) -> None:
        """For objects that hold tensors where `inputs_of` and `outputs_of` do not look. `side`: INPUT or OUTPUT."""
        for value in values:
            if not is_plainly_seen(value):
                self._name_unseen_in(value, frame, side)

    def _name_unseen_in(self, value: Any, frame: Frame, side: Kind) -> None:
        gradient = Kind.GRAD_INPUT if side == Kind.INPUT else Kind.GRAD_OUTPUT
        for path, member in unseen_in(value):
            if adapters.any_says(Adapter.is_by_product, member):
                continue
            name = type(member).__name__
            if type(member) not in self._unknown:
                self._unknown.add(type(member))
                what = f"{side.text}{path} of '{frame.path}', and every other {name}, which may hold tensors"
                self._collector.warn(
                    f"not traceable: {what}; expected tensors, or tuples, lists, dicts and dataclasses of them"
                )
            self._not_seen(frame, f"in a {name}", (side, gradient), tensors=[frame.tensor_name(path)])

    def raised(self, frame: Frame, error: BaseException) -> None:
        name = type(error).__name__
        self._collector.warn(f"not traceable: outputs of '{frame.path}', whose forward raised {name}")
        kinds = (Kind.OUTPUT, Kind.GRAD_OUTPUT)
        self._not_seen(frame, f"the module's forward raised {name}", kinds, tensors=[frame.tensor_name("")])

    def hides_inside(self, frame: Frame, module: torch.nn.Module) -> bool:
        """Whether nothing is to be recorded inside `module`, which is about to be called."""
        compiler = compiler_of(module)
        if compiler:
            if frame.path not in self._hidden:
                advice = "; TORCH_COMPILE_DISABLE=1 shows the modules inside" if compiler == "torch.compile" else ""
                what = f"what runs inside '{frame.path}' is compiled by {compiler}{advice}"
                self._collector.warn(f"not traceable: {what}")
            self._hide_inside(frame, module, f"compiled by {compiler}")
        elif adapters.any_says(Adapter.are_experts, type(module)):
            name = frame.module_class.rpartition(".")[2]
            if name not in self._experts:
                self._experts.add(name)
                what = f"what runs inside '{frame.path}', and every other {name}"
                self._collector.warn(f"not recorded: {what}, in the order of the experts")
            self._hide_inside(frame, module, "the rows inside are in the order of the experts")
        else:
            return False
        return True

    def _hide_inside(self, frame: Frame, module: torch.nn.Module, reason: str) -> None:
        if frame.path not in self._hidden:
            self._hidden.append(frame.path)
        inside = {frame.names.get(id(inner)) for inner in module.modules()} - {frame.path, None}
        self._not_seen(frame, reason, ACTIVATIONS, modules=sorted(inside))

    def function_hides(self, name: str) -> None:
        """A compiled function of that name is called. It may call any module."""
        if self._collector.is_recorded():
            self._collector.warn(
                f"not traceable: what runs inside the function '{name}' is compiled by "
                "torch.compile; TORCH_COMPILE_DISABLE=1 shows the modules inside"
            )
            self._hidden_calls.append("compiled by torch.compile")

    def inside_transform(self, module: torch.nn.Module, chunk: Chunk | None) -> None:
        """`module` is called inside a transform of torch.func; by the program itself where it begins one of `chunk`'s
        micro-batches: the loss and the gradients that the transform makes are no tensors' then."""
        if not self._collector.is_recorded():
            return
        self._collector.warn(
            f"not traceable: calls of '{plain_name(type(module))}' inside a transform of torch.func, such as "
            "vmap and grad"
        )
        self._hidden_calls.append(INSIDE_TRANSFORM)
        if chunk is not None:
            names = [name for name, _ in chunk.parameters()]
            self._collector.not_seen(INSIDE_TRANSFORM, (Kind.PARAM_GRAD,), chunk.number, tensors=names)
            self._collector.not_seen(INSIDE_TRANSFORM, (Kind.SCALAR,), chunk.number, tensors=["loss"])

    def in_backward(self, module: torch.nn.Module, chunk: Chunk) -> None:
        """`module` is called with gradients in a backward that the program has written, and nowhere else."""
        if not self._collector.is_recorded():
            return
        self._collector.warn(
            f"not traceable: calls of '{plain_name(type(module))}' in the backward of a torch.autograd.Function, and "
            "without gradients in its forward"
        )
        self._hidden_calls.append(INSIDE_BACKWARD)
        names = [name for name, _ in chunk.parameters()]
        self._collector.not_seen(INSIDE_BACKWARD, (Kind.PARAM_GRAD,), chunk.number, tensors=names)

    def is_replica(self, module: torch.nn.Module) -> bool:
        """nn.DataParallel makes replicas anew for every forward and runs each in a thread of its own."""
        if not getattr(module, "_is_replica", False):
            return False
        self._collector.warn(
            "not traceable: what runs inside nn.DataParallel on more than one device; expected DistributedDataParallel"
        )
        self._hidden_calls.append("inside nn.DataParallel")
        return True

    def in_several_threads(self, module: torch.nn.Module, other: str, begins: bool) -> None:
        """`module` is called beside what is recorded of the thread `other`. `begins`: it is recorded, too."""
        if self._collector.is_recorded():
            what = "recorded, in an order that may differ from run to run" if begins else "not recorded"
            self._collector.warn(
                f"{what}: calls of '{plain_name(type(module))}' in the thread "
                f"'{threading.current_thread().name}', "
                f"beside those in '{other}'; expected one thread that trains"
            )

    def without_grad(self, module: torch.nn.Module) -> None:
        """`module` is called by the program itself, in no-grad mode: evaluation, or a teacher."""
        if self._collector.is_recorded() and has_parameters(module):
            self._without_grad[id(module)] = plain_name(type(module))

    def _check(self) -> None:
        """At the end of an iteration."""
        if self._collector.is_recorded():
            chunks = [chunk for chunk in self._collector.clock.chunks.values() if chunk.microbatches]
            trained = {key for chunk in self._collector.clock.chunks.values() for key in chunk.names}
            for name in sorted({name for key, name in self._without_grad.items() if key not in trained}):
                self._collector.warn(
                    f"not recorded: calls of '{name}', which the program only calls without gradients"
                    ", as in an evaluation"
                )
            for chunk in chunks:
                self._name_uncalled(chunk)
        self._without_grad, self._hidden_calls = {}, []

    def _not_seen(self, frame: Frame, reason: str, kinds: tuple[Kind, ...], **names: list[str]) -> None:
        chunk = frame.microbatch.chunk
        if frame.microbatch.recorded:
            self._collector.not_seen(reason, kinds, chunk.number if chunk is not None else 0, **names)

    def _name_uncalled(self, chunk: Chunk) -> None:
        """Modules whose parameters got gradients though nobody was seen to call them."""
        called = {
            name
            for microbatch in chunk.microbatches
            for name in (*microbatch.forward_calls, *microbatch.recomputed_calls)
        }
        owners = {
            gradient.name.rpartition(".")[0]
            for microbatch in chunk.microbatches
            for gradient in microbatch.arrived
            if gradient.kind == Kind.PARAM_GRAD
        }
        uncalled = [name for name in _callable_modules(chunk) if name not in called]
        names = [
            name
            for name in uncalled
            if name in owners and not any(name == hidden or name.startswith(f"{hidden}.") for hidden in self._hidden)
        ]
        for reason in dict.fromkeys(self._hidden_calls):
            self._collector.not_seen(reason, ACTIVATIONS, chunk.number, modules=uncalled)
        if names and chunk.names[id(chunk.base)] not in self._hidden:
            self._collector.warn(
                f"not traceable: inputs and outputs of {listed(names)}: the parameters got gradients, "
                "and the module itself was never called (but its forward, or a function with its "
                "parameters)"
            )
            self._collector.not_seen(
                "of a module whose parameters are used without calling it", ACTIVATIONS, chunk.number, modules=names
            )


def _callable_modules(chunk: Chunk) -> list[str]:
    """Names of the modules that a program calls, if it uses them."""
    lists = (torch.nn.ParameterList, torch.nn.ParameterDict)
    return [
        chunk.names[id(module)]
        for module in chunk.base.modules()
        if chunk.names.get(id(module)) and not isinstance(module, lists)
    ]
