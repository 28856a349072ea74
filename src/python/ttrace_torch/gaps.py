"""What the recording of modules does not see, and names in a warning: a gap that nobody is told of would pass for
agreement. What cannot be recorded of a tensor that was seen, `to_host` says; torch.compile has compiled.py."""

import itertools
from typing import Any

import torch

from . import adapters
from .clock import Chunk
from .collector import Collector
from .compiled import compiler_of
from .library import Kind
from .members import unseen_in
from .problems import listed


class Gaps:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._without_grad: dict[int, str] = {}  # id of a module -> its class; of outermost calls
        self._unknown: set[type] = set()  # classes that may hold tensors
        self._hidden: list[str] = []  # modules whose inside is compiled
        collector.on_iteration_end.append(self._check)

    def look_into(self, name: str, side: str, *values: Any) -> None:
        """For objects that hold tensors where `inputs_of` and `outputs_of` do not look. `side`: "input" or "output"."""
        for path, member in itertools.chain(*map(unseen_in, values)):
            if type(member) not in self._unknown and not adapters.is_by_product(member):
                self._unknown.add(type(member))
                what = f"{side}{path} of '{name}', and every other {type(member).__name__}, which may hold tensors"
                self._collector.warn(
                    f"not traceable: {what}; expected tensors, or tuples, lists, dicts and dataclasses of them"
                )

    def raised(self, name: str, error: Exception) -> None:
        self._collector.warn(f"not traceable: outputs of '{name}', whose forward raised {type(error).__name__}")

    def hides_inside(self, name: str, module: torch.nn.Module) -> bool:
        """Whether nothing is to be recorded inside `module`, which is about to be called."""
        compiler = compiler_of(module)
        if compiler and name not in self._hidden:
            self._hidden.append(name)
            advice = "; TORCH_COMPILE_DISABLE=1 shows the modules inside" if compiler == "torch.compile" else ""
            self._collector.warn(f"not traceable: what runs inside '{name}' is compiled by {compiler}{advice}")
        return bool(compiler)

    def is_replica(self, module: torch.nn.Module) -> bool:
        """nn.DataParallel makes replicas anew for every forward and runs each in a thread of its own."""
        if not getattr(module, "_is_replica", False):
            return False
        self._collector.warn(
            "not traceable: what runs inside nn.DataParallel on more than one device; expected DistributedDataParallel"
        )
        return True

    def without_grad(self, module: torch.nn.Module) -> None:
        """`module` is called by the program itself, in no-grad mode: evaluation, or a teacher."""
        if self._collector.is_recorded() and next(module.parameters(), None) is not None:
            self._without_grad[id(module)] = type(module).__name__

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
        self._without_grad = {}

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
        names = [
            name
            for name in _callable_modules(chunk)
            if name in owners
            and name not in called
            and not any(name == hidden or name.startswith(f"{hidden}.") for hidden in self._hidden)
        ]
        if names and chunk.names[id(chunk.base)] not in self._hidden:
            self._collector.warn(
                f"not traceable: inputs and outputs of {listed(names)}: the parameters got gradients, "
                "and the module itself was never called (but its forward, or a function with its "
                "parameters)"
            )


def _callable_modules(chunk: Chunk) -> list[str]:
    """Names of the modules that a program calls, if it uses them."""
    lists = (torch.nn.ParameterList, torch.nn.ParameterDict)
    return [
        chunk.names[id(module)]
        for module in chunk.base.modules()
        if chunk.names.get(id(module)) and not isinstance(module, lists)
    ]
