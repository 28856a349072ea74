"""`--perturb SEED`: activations multiplied elementwise by 1 + eps * u, as `--perturb-at` says.

u in [-1, 1) comes from the consistent generator, keyed by the activation's canonical identity, so that one rank and
many perturb the same logical elements by the same factors, and a recomputation the same as its forward. The product is
computed in fp32 (fp64 for fp64), rounded back, and an ordinary part of the graph: backward multiplies the gradient by
the same factor, and is perturbed at the same points. What is recorded is what the perturbation has made, on both ways:
the product, which the rest of the model goes on with, and the gradient behind it, which the module goes on with."""

import weakref
from typing import Any

import torch

from .clock import ROOT, Microbatch
from .collector import Collector
from .frame import Frame
from .library import Kind, Pass
from .members import Member, first_that, inputs_of, outputs_of, replaced
from .placements import part_of
from .problems import CollectError
from .tensors import INSIDE_GRAPH, has_plain_values, is_capturing, is_dtensor, is_floating


class Perturbation:
    """Its methods raise CollectError where the program cannot be perturbed."""

    expected = ""  # what a model needs for it; each subclass says its own

    def __init__(self, collector: Collector, seed: int):
        self._collector, self._seed = collector, seed
        collector.on_iteration_end.append(self._check)

    def perturb_inputs(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments that the module is to work with; the same objects where nothing changes."""
        return args, kwargs

    def perturb_outputs(self, frame: Frame, args: tuple, kwargs: dict, result: Any) -> Any:
        """What the module is to return; the same object where nothing changes."""
        raise NotImplementedError

    def perturb_in_transform(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments of a model that is called inside a transform of torch.func."""
        return args, kwargs

    def perturb_in_backward(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments of a model that is called in a backward alone."""
        return args, kwargs

    def _product(self, frame: Frame, kind: Kind, member: Member, eps: float) -> torch.Tensor:
        return _Product.apply(member[1], self._factor(frame, kind, member, eps))

    def _factor(self, frame: Frame, kind: Kind, member: Member, eps: float) -> torch.Tensor:
        suffix, tensor = member
        if is_capturing():
            raise CollectError(f"--perturb: '{frame.path}' is {INSIDE_GRAPH}; expected a program without CUDA graphs")
        if frame.microbatch.perturbed is None:
            frame.microbatch.perturbed = frame.forward_id(kind, "")
        noise = self._collector.open().perturbation(self._seed, frame.forward_id(kind, suffix), tensor.shape)
        if is_dtensor(tensor):  # whose shape is that of the whole
            noise = part_of(noise, tensor)
        elif kind == Kind.INPUT and not _is_wrapped(tensor) and has_plain_values(tensor):
            noise = _keeping_categories(noise, tensor, eps)
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        return 1 + eps * noise.to(device=tensor.device, dtype=wide)

    def _check(self) -> None:
        """At the end of an iteration."""
        clock = self._collector.clock
        # The program's first, or what was called of it before (rehearsals.py) and is now a part of it.
        holders = [chunk for chunk in clock.chunks.values() if chunk.holds_first and chunk.microbatches]
        first = holders[-1] if holders else None
        if first is None or self._collector.open().require_axes("--perturb").coordinate("pp") != 0:
            return
        if any(each.perturbed is None for each in first.microbatches if not each.before_parameters):
            raise CollectError(f"nothing could be perturbed in iteration {clock.iteration}: expected {self.expected}")


class PerturbedInput(Perturbation):
    """The first floating-point activation of every micro-batch: the model's own input where its first tensor is
    floating; else the first floating output of a module whose first tensor is of integers: an embedding. Of a model
    that is given objects in place of tensors, or containers that cannot be copied, the input of the first module inside
    that is given tensors, or where there is none the model's output. eps is that of the compute dtype, or of the
    activation where that is coarser. Later pipeline stages perturb nothing, and neither does a further model whose
    input has a graph behind it: another one has computed it, and is perturbed. What was detached from there is
    perturbed twice. (TTrace, section 4.5)"""

    expected = (
        "a model whose first tensor argument is floating, or one with a module that turns integers into "
        "floating-point values"
    )

    def __init__(self, collector: Collector, seed: int):
        super().__init__(collector, seed)
        self._given_none: Microbatch | None = None  # the last one whose model's input cannot be perturbed

    def perturb_inputs(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        if frame.path == ROOT and not inputs_of(args, kwargs):
            self._given_none = frame.microbatch
        is_first = frame.path == ROOT or frame.microbatch is self._given_none
        if not is_first or not self._is_due(frame, Kind.INPUT):
            return args, kwargs
        first = first_that(lambda tensor: tensor.dtype != torch.bool, inputs_of(args, kwargs))
        if first is None or not is_floating(first[1]):
            return args, kwargs
        if not frame.microbatch.chunk.holds_first and first[1].grad_fn is not None:
            return args, kwargs
        old, new = first[1], self._perturbed(frame, Kind.INPUT, first)
        try:
            return replaced(args, old, new), replaced(kwargs, old, new)
        except CollectError as error:  # an object that modules write into, as a TensorDict
            frame.microbatch.perturbed, self._given_none = None, frame.microbatch
            self.expected = f"{type(self).expected}; {error}"
            return args, kwargs

    def perturb_in_transform(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """A tensor there may be that of one sample: each is multiplied by the same factors."""
        first = first_that(lambda tensor: tensor.dtype != torch.bool, inputs_of(args, kwargs))
        if first is None or not is_floating(first[1]) or not self._is_due(frame, Kind.INPUT):
            return args, kwargs
        with torch._C._DisableFuncTorch():  # what is made inside has no storage
            factor = self._factor(frame, Kind.INPUT, first, self._eps_of(first[1]))
        product = _multiplied(first[1], factor)
        return replaced(args, first[1], product), replaced(kwargs, first[1], product)

    def perturb_in_backward(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The first that is more than a number: the function of an ODE may be given the time before the state."""
        first = first_that(lambda tensor: is_floating(tensor) and tensor.numel() > 1, inputs_of(args, kwargs))
        if first is None or not self._is_due(frame, Kind.INPUT):
            return args, kwargs
        new = self._perturbed(frame, Kind.INPUT, first)
        return replaced(args, first[1], new), replaced(kwargs, first[1], new)

    def perturb_outputs(self, frame: Frame, args: tuple, kwargs: dict, result: Any) -> Any:
        if not self._is_due(frame, Kind.OUTPUT):
            return result
        first = first_that(is_floating, outputs_of(result))
        given = first_that(lambda tensor: tensor.dtype != torch.bool, inputs_of(args, kwargs))
        is_all_of_model = frame.path == ROOT and frame.microbatch is self._given_none
        if first is None or (not is_all_of_model if given is None else is_floating(given[1])):
            return result
        return replaced(result, first[1], self._perturbed(frame, Kind.OUTPUT, first))

    def _is_due(self, frame: Frame, kind: Kind) -> bool:
        """Whether none was perturbed before this call. A recomputation is due where the call that it repeats was."""
        microbatch = frame.microbatch
        if microbatch.chunk is None:
            return False
        axes = self._collector.open().require_axes("--perturb")
        is_stage = axes.coordinate("pp") != 0 or (axes.sizes().get("pp", 1) > 1 and not microbatch.chunk.holds_first)
        if is_stage:
            return False
        if frame.pass_ == Pass.FORWARD:
            return microbatch.perturbed is None
        return microbatch.perturbed == frame.forward_id(kind, "")

    def _perturbed(self, frame: Frame, kind: Kind, member: Member) -> torch.Tensor:
        return self._product(frame, kind, member, self._eps_of(member[1]))

    def _eps_of(self, tensor: torch.Tensor) -> float:
        file = self._collector.open()
        file.look_for_autocast()
        # What is narrower than the compute dtype would be rounded back to what it was.
        return max(torch.finfo(dtype).eps for dtype in (file.compute_dtype, tensor.dtype))


class PerturbedModules(Perturbation):
    """Every module's floating-point outputs, as Monte Carlo arithmetic perturbs every operation's result (Parker,
    1997; verificarlo), with the eps of the output's own dtype, to which the module rounds it.

    A value is perturbed once where it is computed, however many modules hand it on: not where a module returns (a view
    of) what it was given, or what a module inside it has returned. Else wrappers would count as operations."""

    expected = "a model with a module whose output is floating"

    def __init__(self, collector: Collector, seed: int):
        super().__init__(collector, seed)
        # id of a product -> it, and its version, which counts in-place operations on it and its views.
        self._products: dict[int, tuple[weakref.ReferenceType[torch.Tensor], int]] = {}

    def perturb_outputs(self, frame: Frame, args: tuple, kwargs: dict, result: Any) -> Any:
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
            product = self._product(frame, Kind.OUTPUT, (member, tensor), torch.finfo(tensor.dtype).eps)
            key = id(product)
            self._products[key] = (
                weakref.ref(product, lambda _, key=key: self._products.pop(key, None)),
                product._version,
            )
            result = replaced(result, tensor, product)
        return result

    def _is_product(self, tensor: torch.Tensor) -> bool:
        """Whether it was made here, and has not been written to since."""
        product, version = self._products.get(id(tensor), (lambda: None, 0))
        return product() is tensor and version == tensor._version


PERTURBATIONS = {"input": PerturbedInput, "modules": PerturbedModules}  # by the name that --perturb-at has for it


class _Product(torch.autograd.Function):
    """Multiplies, but saves no tensor: non-reentrant activation checkpointing counts what is saved in forward, and
    ends the recomputation by an exception once as many are saved there."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        context.factor = factor
        return _multiplied(tensor, factor)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _multiplied(gradient, context.factor), None


def _is_wrapped(tensor: torch.Tensor) -> bool:
    """By a transform of torch.func."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _keeping_categories(noise: torch.Tensor, tensor: torch.Tensor, eps: float) -> torch.Tensor:
    """Noise that takes columns of integers away from zero alone, and by less than 1: a table has numbers of categories
    in such, which a model truncates (`x[:, 3].long()`), and what is less than 3 is 2. Zeros and ones are features as
    often, of which one would have the mean moved."""
    with torch.no_grad():
        values = tensor.detach().to("cpu")
        are_integers = values == values.trunc()
        columns = are_integers.flatten(0, -2).all(0) if values.dim() > 1 else are_integers.all()
        if not columns.any() or not (values.abs() > 1).any():
            return noise
        return torch.where(columns, noise.abs().minimum((0.99 / eps / values.abs()).to(noise)), noise)


def _multiplied(tensor: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return (tensor.to(factor.dtype) * factor).to(tensor.dtype)


def _base_of(tensor: torch.Tensor) -> torch.Tensor:
    """What `tensor` is a view of; itself where it is none."""
    return tensor if tensor._base is None else tensor._base
