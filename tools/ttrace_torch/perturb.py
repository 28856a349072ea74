"""`--perturb SEED`: the first floating-point activation of every micro-batch, multiplied elementwise by 1 + eps * u.

That activation is the model's own input where its first tensor is floating; else the first floating output of a
module whose tensor inputs are all integers: an embedding. u comes from the consistent generator, keyed by the
activation's canonical identity, so that one rank and many perturb the same logical elements by the same factors; eps
is the machine epsilon of the compute dtype. The product is computed in fp32 (fp64 for fp64), rounded back, and an
ordinary part of the graph. A recomputation is perturbed as its forward was. Later pipeline stages perturb nothing."""

from typing import Any, Optional, Tuple

import torch

from . import library
from .clock import ROOT
from .collector import Collector
from .placements import part_of
from .problems import CollectError
from .tensors import first_that, inputs_of, is_dtensor, is_floating, outputs_of, replaced


class Perturbation:
    def __init__(self, collector: Collector, seed: int):
        self._collector, self._seed = collector, seed
        collector.on_iteration_end.append(self._check)

    def of_inputs(self, frame, args: tuple, kwargs: dict) -> Optional[Tuple[tuple, dict]]:
        """The arguments with a perturbed one; None where nothing changes."""
        if frame.path != ROOT or not self._is_due(frame, library.INPUT):
            return None
        found = inputs_of(args, kwargs)
        first = first_that(lambda tensor: tensor.dtype != torch.bool, found)
        if first is None or not is_floating(first):
            return None
        new = self._perturbed(frame, library.INPUT, found, first)
        return replaced(args, first, new), replaced(kwargs, first, new)

    def of_outputs(self, frame, args: tuple, kwargs: dict, result: Any) -> Optional[Tuple[Any]]:
        """The result with a perturbed tensor, in a tuple of one; None where nothing changes."""
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
        microbatch = frame.microbatch
        microbatch.perturbed = (kind, frame.tensor_name(""))
        member = next(member for member, found_tensor in found if found_tensor is tensor)
        file = self._collector.open()
        noise = file.perturbation(self._seed, microbatch.iteration, microbatch.number, microbatch.chunk, kind,
                                  frame.tensor_name(member), tensor.shape)  # fmt: skip
        if is_dtensor(tensor):  # whose shape is that of the whole
            noise = part_of(noise, tensor)
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        factor = 1 + torch.finfo(file.compute_dtype).eps * noise.to(device=tensor.device, dtype=wide)
        return (tensor.to(wide) * factor).to(tensor.dtype)

    def _check(self) -> None:
        """At the end of an iteration."""
        clock = self._collector.clock
        first = next((chunk for chunk in clock.chunks.values() if chunk.number == 0), None)
        if first is None or self._collector.open().place.coordinate("pp") != 0:
            return
        if any(microbatch.perturbed is None for microbatch in first.microbatches):
            raise CollectError(
                f"nothing could be perturbed in iteration {clock.iteration}: expected a model whose first tensor "
                "argument is floating, or one with a module that turns integers into floating-point values"
            )
