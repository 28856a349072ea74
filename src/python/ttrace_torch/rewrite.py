"""`--inject`, `--rewrite`, `--inject-params`, `--consistent-init`: what a module is given in place of what the program
has computed (TTrace, section 4.3). The values lie in a trace, in the file of this rank; what makes them and lays them
out as the ranks hold them is `ttrace collect` itself (src/workflow/rewriting.cpp).

A module's input is recorded as the program gives it; the module then works with a tensor that has the trace's values
and passes its gradient on to the program's. An output goes on as it is, and takes, in backward, the gradient that the
trace holds instead of the one that has arrived and been recorded. So all that is recorded has come from right values
by way of one module, or of what stands between two."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from . import library
from .clock import ROOT, Chunk, Microbatch
from .collector import Collector
from .config import Rewrite
from .optimizers import trained_in
from .problems import CollectError
from .tensors import dtype_name, inputs_of, is_dtensor, is_floating, outputs_of, replaced

_DTYPE_NAMES = {code: name for name, code in library.DTYPES.items()}
_KINDS = {library.INPUT: "input", library.GRAD_OUTPUT: "grad_output", library.PARAM: "param"}


class Rewriting:
    def __init__(self, collector: Collector, config: Rewrite):
        self._collector, self._config = collector, config
        self._source: library.Source | None = None
        self._replaced = 0  # in this iteration
        self._missing: list[str] = []
        collector.on_iteration_end.append(self._check)

    def of_program(self, frame, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """The model's arguments with other integers, which count as the program's own; None where nothing changes."""
        if not self._config.integers or frame.path != ROOT:
            return None
        return self._given(frame, args, kwargs, lambda tensor: not is_floating(tensor), lambda _, value: value)

    def of_inputs(self, frame, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """The arguments as the module is given them; None where nothing changes."""
        if not self._config.activations:
            return None

        def give(tensor, value):
            given = _Given.apply(tensor, [value])
            frame.given.append((tensor, given, given._version))
            return given

        return self._given(frame, args, kwargs, is_floating, give)

    def of_outputs(self, frame, result: Any) -> tuple[list[tuple[str, torch.Tensor]], tuple[Any]]:
        """What the module has made, as in `outputs_of`, whose gradients are to be replaced, and, in a tuple of one, the
        result as the program gets it: with tensors of its own, so that what uses them is not taken for the module."""
        for program, given, version in frame.given:
            result = replaced(result, given, program)
            if given._version != version:
                program.copy_(given)  # the module wrote into its input, which the program may go on to read
        frame.given.clear()
        made = outputs_of(result)
        for _, tensor in made:
            if self._config.activations and is_floating(tensor) and tensor.requires_grad:
                result = replaced(result, tensor, _Passed.apply(tensor))
        return made, (result,)

    def gradient(self, microbatch: Microbatch, kind: int, name: str, arrived: torch.Tensor) -> torch.Tensor | None:
        if not self._config.activations:
            return None
        return self._find(microbatch, library.FORWARD, kind, name, arrived)

    def set_parameters(self, chunk: Chunk) -> None:
        """Before the chunk's first call in an iteration. The optimizer's masters follow."""
        if not self._config.parameters:
            return
        iteration = self._collector.clock.iteration
        for trained in trained_in(chunk):
            parameter = trained.parameter
            found = self._open().find(
                iteration, library.NO_MICROBATCH, chunk.number, library.FORWARD, library.PARAM, trained.name
            )
            if found is None:
                continue
            with torch.no_grad():
                parameter.copy_(self._value(found, library.PARAM, trained.name, parameter))
                if trained.master is not parameter:
                    whole = parameter if trained.owned is None else trained.owned.of(parameter, parameter)
                    trained.master.copy_(whole.reshape(trained.master.shape))
            self._replaced += 1

    def _given(self, frame, args: tuple, kwargs: dict, which: Callable, give: Callable) -> tuple[tuple, dict] | None:
        changed = None
        for member, tensor in inputs_of(args, kwargs):
            value = None
            if which(tensor):
                value = self._find(frame.microbatch, frame.pass_, library.INPUT, frame.tensor_name(member), tensor)
            if value is not None:
                new = give(tensor, value)
                changed = args, kwargs = replaced(args, tensor, new), replaced(kwargs, tensor, new)
        return changed

    def _find(
        self, microbatch: Microbatch, pass_: int, kind: int, name: str, like: torch.Tensor
    ) -> torch.Tensor | None:
        """A recomputation is given what the trace recorded of one, or else of the forward."""
        where = (microbatch.iteration, microbatch.number, microbatch.chunk)
        found = self._open().find(*where, pass_, kind, name)
        if found is None and pass_ != library.FORWARD:
            found = self._open().find(*where, library.FORWARD, kind, name)
        if found is None:
            self._missing.append(f"{_KINDS[kind]} of '{name}'")
            return None
        self._replaced += 1
        return self._value(found, kind, name, like)

    def _open(self) -> library.Source:
        if self._source is None:
            place, config = self._collector.open().place, self._collector.config
            self._source = library.Source(config.library, self._config.directory, place.rank, place.world_size)
        return self._source

    def _value(self, found: tuple[int, int, tuple[int, ...]], kind: int, name: str, like: torch.Tensor) -> torch.Tensor:
        """A new tensor of what was found, placed as `like`. Raises CollectError where it does not fit."""
        address, dtype, shape = found
        local = like._local_tensor if is_dtensor(like) else like
        if (_DTYPE_NAMES[dtype], shape) != (dtype_name(local.dtype), tuple(local.shape)):
            raise CollectError(
                f"{_KINDS[kind]} of '{name}' is {dtype_name(local.dtype)} {list(local.shape)}, and "
                f"{_DTYPE_NAMES[dtype]} {list(shape)} in {self._config.directory}; expected --layout with "
                "an earlier trace of this very command"
            )
        value = torch.empty(shape, dtype=local.dtype)
        if value.numel() > 0:
            ctypes.memmove(value.data_ptr(), address, value.numel() * value.element_size())
        value = value.to(local.device)
        if not is_dtensor(like):
            return value
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(
            value, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )

    def _check(self) -> None:
        """At the end of an iteration."""
        clock, collector = self._collector.clock, self._collector
        count, missing, self._replaced, self._missing = self._replaced, self._missing, 0, []
        if not collector.is_recorded() or not any(chunk.microbatches for chunk in clock.chunks.values()):
            return
        if count == 0:
            raise CollectError(
                f"nothing could be rewritten in iteration {clock.iteration}: expected a trace of this "
                f"program in {self._config.directory} with that iteration in it"
            )
        if missing:
            collector.warn(
                f"not rewritten in iteration {clock.iteration}: {len(missing)} tensors that the trace lacks, "
                f"such as {missing[0]}"
            )


class _Given(torch.autograd.Function):
    """`value` in forward; in backward the gradient goes on to the program's tensor. Saves no tensor, as in perturb.py."""

    @staticmethod
    def forward(context, tensor: torch.Tensor, value: list) -> torch.Tensor:
        return value[0]  # out of a list: autograd makes a view of a tensor that is handed through

    @staticmethod
    def backward(context, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _Passed(torch.autograd.Function):
    """The tensor itself, as another one."""

    @staticmethod
    def forward(context, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    @staticmethod
    def backward(context, gradient: torch.Tensor) -> torch.Tensor:
        return gradient
