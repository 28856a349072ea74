"""`--perturb SEED`: activations multiplied elementwise by 1 + eps * u, as `--perturb-at` says.

u in [-1, 1) comes from the consistent generator, keyed by the activation's canonical identity, so that one rank and
many perturb the same logical elements by the same factors, and a recomputation the same as its forward. The product is
computed in fp32 (fp64 for fp64), rounded back, and an ordinary part of the graph: backward multiplies the gradient by
the same factor, and is perturbed at the same points. What is recorded is what the perturbation has made, on both ways:
the product, which the rest of the model goes on with, and the gradient behind it, which the module goes on with."""

import weakref
from typing import Any

import torch

from . import library
from .clock import ROOT
from .collector import Collector
from .placements import part_of
from .problems import CollectError
from .tensors import first_that, inputs_of, is_dtensor, is_floating, outputs_of, replaced


class _Perturbation:
    expected = ""  # what a model needs for this; set by each

    def __init__(self, collector: Collector, seed: int):
        self._collector, self._seed = collector, seed
        collector.on_iteration_end.append(self._check)

    def of_inputs(self, frame, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """The arguments with a perturbed one; None where nothing changes."""
        return None

    def of_outputs(self, frame, args: tuple, kwargs: dict, result: Any) -> tuple[Any] | None:
        """The result with perturbed tensors, in a tuple of one; None where nothing changes."""
        raise NotImplementedError

    def _product(self, frame, kind: int, member: str, tensor: torch.Tensor, eps: float) -> torch.Tensor:
        """`member` as in `inputs_of`."""
        microbatch = frame.microbatch
        if microbatch.perturbed is None:
            microbatch.perturbed = (kind, frame.tensor_name(""))
        noise = self._collector.open().perturbation(
            self._seed,
            microbatch.iteration,
            microbatch.number,
            microbatch.chunk,
            kind,
            frame.tensor_name(member),
            tensor.shape,
        )
        if is_dtensor(tensor):  # whose shape is that of the whole
            noise = part_of(noise, tensor)
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        return _Product.apply(tensor, 1 + eps * noise.to(device=tensor.device, dtype=wide))

    def _check(self) -> None:
        """At the end of an iteration."""
        clock = self._collector.clock
        first = next((chunk for chunk in clock.chunks.values() if chunk.number == 0), None)
        if first is None or self._collector.open().place.coordinate("pp") != 0:
            return
        if any(microbatch.perturbed is None for microbatch in first.microbatches):
            raise CollectError(f"nothing could be perturbed in iteration {clock.iteration}: expected {self.expected}")


class AtInput(_Perturbation):
    """The first floating-point activation of every micro-batch: the model's own input where its first tensor is
    floating; else the first floating output of a module whose tensor inputs are all integers: an embedding. eps is that
    of the compute dtype. Later pipeline stages perturb nothing. (TTrace, section 4.5)"""

    expected = (
        "a model whose first tensor argument is floating, or one with a module that turns integers into "
        "floating-point values"
    )

    def of_inputs(self, frame, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        if frame.path != ROOT or not self._is_due(frame, library.INPUT):
            return None
        found = inputs_of(args, kwargs)
        first = first_that(lambda tensor: tensor.dtype != torch.bool, found)
        if first is None or not is_floating(first):
            return None
        new = self._perturbed(frame, library.INPUT, found, first)
        return replaced(args, first, new), replaced(kwargs, first, new)

    def of_outputs(self, frame, args: tuple, kwargs: dict, result: Any) -> tuple[Any] | None:
        if not self._is_due(frame, library.OUTPUT):
            return None
        inputs, found = inputs_of(args, kwargs), outputs_of(result)
        first = first_that(is_floating, found)
        if first is None or not inputs or first_that(is_floating, inputs) is not None:
            return None
        return (replaced(result, first, self._perturbed(frame, library.OUTPUT, found, first)),)

    def _is_due(self, frame, kind: int) -> bool:
        microbatch = frame.microbatch
        if microbatch.owner is None or microbatch.chunk != 0 or self._collector.open().place.coordinate("pp") != 0:
            return False
        if frame.pass_ == library.FORWARD:
            return microbatch.perturbed is None
        return microbatch.perturbed == (kind, frame.tensor_name(""))

    def _perturbed(self, frame, kind: int, found: list, tensor: torch.Tensor) -> torch.Tensor:
        member = next(member for member, found_tensor in found if found_tensor is tensor)
        return self._product(frame, kind, member, tensor, torch.finfo(self._collector.open().compute_dtype).eps)


class AtModules(_Perturbation):
    """Every module's floating-point outputs, as Monte Carlo arithmetic perturbs every operation's result (Parker,
    1997; verificarlo), with the eps of the output's own dtype, to which the module rounds it.

    A value is perturbed once where it is computed, however many modules hand it on: not where a module returns (a view
    of) what it was given, or what a module inside it has returned. Else wrappers would count as operations."""

    expected = "a model with a module whose output is floating"

    def __init__(self, collector: Collector, seed: int):
        super().__init__(collector, seed)
        # id of a product -> it, and its version, which counts in-place operations on it and its views.
        self._products: dict[int, tuple[weakref.ref, int]] = {}

    def of_outputs(self, frame, args: tuple, kwargs: dict, result: Any) -> tuple[Any] | None:
        given = {id(_base_of(tensor)) for _, tensor in inputs_of(args, kwargs)}
        computed = {
            id(tensor): (member, tensor)
            for member, tensor in outputs_of(result)
            if is_floating(tensor)
            and tensor.numel() > 0
            and id(_base_of(tensor)) not in given
            and not self._is_product(_base_of(tensor))
        }
        for member, tensor in computed.values():
            product = self._product(frame, library.OUTPUT, member, tensor, torch.finfo(tensor.dtype).eps)
            key = id(product)
            self._products[key] = (
                weakref.ref(product, lambda _, key=key: self._products.pop(key, None)),
                product._version,
            )
            result = replaced(result, tensor, product)
        return (result,) if computed else None

    def _is_product(self, tensor: torch.Tensor) -> bool:
        """And has not been written to since."""
        product, version = self._products.get(id(tensor), (lambda: None, 0))
        return product() is tensor and version == tensor._version


PLACES = {"input": AtInput, "modules": AtModules}


class _Product(torch.autograd.Function):
    """As multiplying, but saves no tensor: non-reentrant activation checkpointing counts what is saved in forward, and
    ends the recomputation by an exception once as many are saved there."""

    @staticmethod
    def forward(context, tensor: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        context.factor = factor
        return _multiplied(tensor, factor)

    @staticmethod
    def backward(context, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _multiplied(gradient, context.factor), None


def _multiplied(tensor: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return (tensor.to(factor.dtype) * factor).to(tensor.dtype)


def _base_of(tensor: torch.Tensor) -> torch.Tensor:
    """What it is a view of, or itself."""
    return tensor if tensor._base is None else tensor._base
