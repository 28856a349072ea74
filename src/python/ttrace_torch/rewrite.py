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

from .clock import ROOT, Chunk
from .collector import Collector
from .config import Rewrite
from .frame import Frame
from .library import Kind, Pass, Source, TensorId, TensorView
from .masters import TrainedParameter, trained_parameters
from .members import Member, inputs_of, outputs_of, replaced
from .problems import CollectError
from .tensors import INSIDE_GRAPH, dtype_name, is_capturing, is_dtensor, is_floating


class Rewriting:
    """Its methods raise CollectError where the trace does not fit the program."""

    def __init__(self, collector: Collector, config: Rewrite):
        self._collector, self._config = collector, config
        self._source: Source | None = None
        self._replaced = 0  # tensors, in this iteration
        self._missing: list[str] = []  # what the trace lacks, in this iteration
        collector.on_iteration_end.append(self._check)

    def rewrite_integers(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The model's arguments with the trace's integers, which count as the program's own."""
        if not self._config.integers or frame.path != ROOT:
            return args, kwargs
        return self._with_values(frame, args, kwargs, lambda tensor: not is_floating(tensor), lambda _, value: value)

    def rewrite_inputs(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments that the module is to work with."""
        if not self._config.activations:
            return args, kwargs

        def in_place_of(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            given = _InPlaceOf.apply(tensor, [value])
            frame.rewritten_inputs.append((tensor, given, given._version))
            return given

        return self._with_values(frame, args, kwargs, is_floating, in_place_of)

    def rewrite_outputs(self, frame: Frame, result: Any) -> tuple[list[Member], Any]:
        """The tensors that the module has computed, whose gradients are to be replaced; and the result as the program
        gets it, with tensors of its own, so that the gradients of what uses them are not taken for theirs."""
        for program, given, version in frame.rewritten_inputs:
            result = replaced(result, given, program)
            if given._version != version:
                program.copy_(given)  # the module wrote into its input, which the program may go on to read
        frame.rewritten_inputs.clear()
        computed = outputs_of(result)
        for _, tensor in computed:
            if self._config.activations and is_floating(tensor) and tensor.requires_grad:
                result = replaced(result, tensor, _Copy.apply(tensor))
        return computed, result

    def gradient(self, tensor_id: TensorId, arrived: torch.Tensor) -> torch.Tensor | None:
        """What backward goes on with instead of the gradient that has arrived; None where it is to keep that."""
        return self._find(tensor_id, arrived) if self._config.activations else None

    def set_parameters(self, chunk: Chunk) -> None:
        """Before the chunk's first call in an iteration. The optimizer's masters follow."""
        if not self._config.parameters:
            return
        for trained in trained_parameters(chunk):
            share = trained.share
            tensor_id = self._collector.clock.parameter_id(chunk.number, Kind.PARAM, trained.name)
            found = self._open().find(tensor_id)
            if found is None:
                continue
            with torch.no_grad():
                value = self._value(found, tensor_id, share.held)
                is_there = torch.equal(share.held, value)
                share.held.copy_(value)
                if share.master is not share.held:
                    self._set_master(trained, is_there)
            self._replaced += 1

    def _set_master(self, trained: TrainedParameter, is_there: bool) -> None:
        """To what the trace recorded of it before its step, or else to the parameter. A master of which nothing was
        recorded stays as it is where the parameter has the trace's value already."""
        share = trained.share
        master = share.master if share.owned is None else share.master.reshape(-1)
        local = master._local_tensor if is_dtensor(master) else master
        tensor_id = self._collector.clock.parameter_id(trained.chunk, Kind.MASTER, trained.name)
        found = self._open().find(tensor_id)
        if found is not None and (found.dtype.text, found.shape) == (dtype_name(local.dtype), tuple(local.shape)):
            share.master.copy_(self._value(found, tensor_id, master).reshape(share.master.shape))
        elif not is_there:
            own = share.held if share.owned is None else share.owned.of(share.held)
            share.master.copy_(own.reshape(share.master.shape))

    def _with_values(
        self,
        frame: Frame,
        args: tuple,
        kwargs: dict,
        concerns: Callable[[torch.Tensor], bool],
        in_place_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> tuple[tuple, dict]:
        """`in_place_of(tensor, value)`: what the module is given for a tensor of which the trace has the value."""
        for member, tensor in inputs_of(args, kwargs):
            value = self._find(frame.tensor_id(Kind.INPUT, member), tensor) if concerns(tensor) else None
            if value is not None:
                new = in_place_of(tensor, value)
                args, kwargs = replaced(args, tensor, new), replaced(kwargs, tensor, new)
        return args, kwargs

    def _find(self, tensor_id: TensorId, like: torch.Tensor) -> torch.Tensor | None:
        """The trace's value. A recomputation is given what the trace recorded of one, or else of the forward."""
        if is_capturing():
            raise CollectError(f"{_described(tensor_id)} is {INSIDE_GRAPH}; expected a program without CUDA graphs")
        found = self._open().find(tensor_id)
        if found is None and tensor_id.pass_ != Pass.FORWARD:
            found = self._open().find(tensor_id._replace(pass_=Pass.FORWARD))
        if found is None:
            self._missing.append(_described(tensor_id))
            return None
        self._replaced += 1
        return self._value(found, tensor_id, like)

    def _open(self) -> Source:
        if self._source is None:
            position, library = self._collector.open().position, self._collector.config.library
            self._source = Source(library, self._config.directory, rank=position.rank, world_size=position.world_size)
        return self._source

    def _value(self, found: TensorView, tensor_id: TensorId, like: torch.Tensor) -> torch.Tensor:
        """A new tensor of what was found, with the device and the placements of `like`."""
        local = like._local_tensor if is_dtensor(like) else like
        if (found.dtype.text, found.shape) != (dtype_name(local.dtype), tuple(local.shape)):
            raise CollectError(
                f"{_described(tensor_id)} is {dtype_name(local.dtype)} {list(local.shape)}, and "
                f"{found.dtype.text} {list(found.shape)} in {self._config.directory}; expected --layout with "
                "an earlier trace of this very command"
            )
        value = torch.empty(found.shape, dtype=local.dtype)
        if value.numel() > 0:
            ctypes.memmove(value.data_ptr(), found.address, value.numel() * value.element_size())
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


def _described(tensor_id: TensorId) -> str:
    return f"{tensor_id.kind.text} of '{tensor_id.name}'"


class _InPlaceOf(torch.autograd.Function):
    """In forward the trace's value; in backward the gradient goes on to the program's tensor. It saves no tensor, for
    the reason that perturb.py gives."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, value: list[torch.Tensor]) -> torch.Tensor:
        return value[0]  # out of a list: autograd makes a view of a tensor that is handed through

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _Copy(torch.autograd.Function):
    """The same values in a tensor of its own."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient
