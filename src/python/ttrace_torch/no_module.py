"""What optimizers train that no model has: a temperature or the weights of losses, kept beside the networks, or by a
module that is never called.

Such tensors are known by the optimizer that is about to step them, with a gradient, and named by the order in which
that happens. Programs that keep masters by hand have tensors like these in their optimizers, too, in the place of the
models' parameters: where any of those that got a gradient is in no optimizer, these are taken for masters, and are
named as not seen, but for their optimizer's options. A skeleton whose parameters others take the place of
(torch.func.functional_call) gets none."""

from collections.abc import Iterable

import torch

from .collector import Collector
from .library import Kind
from .masters import TrainedParameter, record_part, trained_parameters
from .shares import attributes_share
from .tensors import is_capturing, local_part

_NAME = "(optimizer)"  # no path of a module
_KINDS = (Kind.PARAM, Kind.MAIN_GRAD, Kind.PARAM_DELTA, Kind.PARAM_AFTER)


class OfNoModule:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._found: dict[int, TrainedParameter] = {}  # by id of the tensor, which they keep alive
        self._masters = 0  # that were taken for some
        self._iteration = -1  # which the following are of
        self._of_models: set[int] = set()  # ids: to ask all adapters takes long
        self._begun: set[str] = set()  # recorded as they were before a step

    def parameters(self) -> list[TrainedParameter]:
        return list(self._found.values())

    def look(self, stepping: torch.optim.Optimizer, optimizers: Iterable[torch.optim.Optimizer]) -> bool:
        """Before `stepping`, one of the program's `optimizers`, updates its parameters in a recorded iteration. Returns
        whether these are masters kept by hand."""
        if self._iteration != self._collector.clock.iteration:
            self._iteration, self._of_models, self._begun = self._collector.clock.iteration, set(), set()
        ready = [each for each in _listed(stepping) if each.grad is not None]
        if not self._collector.clock.chunks and _takes_nothing(stepping, ready):
            return False
        are_masters = False
        if any(id(each) not in self._found and id(each) not in self._of_models for each in ready):
            are_masters = self._find_masters(ready, optimizers)
        self._record_before([self._found[id(each)] for each in ready if id(each) in self._found])
        return are_masters

    def _find_masters(self, ready: list[torch.Tensor], optimizers: Iterable[torch.optim.Optimizer]) -> bool:
        """Whether there are any; if not, what is of no model is found."""
        chunks = self._collector.clock.chunks.values()
        every = [trained for chunk in chunks for trained in trained_parameters(chunk)]
        shares = [each.share for each in every]
        self._of_models = {id(tensor) for share in shares for tensor in (share.stepped, share.held, share.master)}
        ready = [each for each in ready if id(each) not in self._of_models | self._found.keys()]
        if ready and self._are_masters_kept(every, optimizers):
            self._masters = max(self._masters, len(ready))
            names = [f"{_NAME}.{number}" for number in range(self._masters)]
            self._collector.not_seen("of a tensor that may be a master kept by hand", _KINDS, 0, tensors=names)
            return True
        for tensor in ready:
            name = f"{_NAME}.{len(self._found)}"
            self._found[id(tensor)] = TrainedParameter(0, name, attributes_share(tensor))
        return False

    def _are_masters_kept(self, every: list[TrainedParameter], optimizers: Iterable[torch.optim.Optimizer]) -> bool:
        """Whether there are parameters that got gradients and that no optimizer has."""
        listed = {id(parameter) for optimizer in optimizers for parameter in _listed(optimizer)}
        arrived = self._collector.clock.got_gradients()
        return any(
            (each.chunk, each.name) in arrived and not listed & {id(each.share.stepped), id(each.share.held)}
            for each in every
        )

    def _record_before(self, stepped: list[TrainedParameter]) -> None:
        for trained in stepped:
            if trained.name not in self._begun and not is_capturing():
                self._begun.add(trained.name)
                record_part(self._collector, trained, Kind.PARAM, trained.share.held, None)


def _takes_nothing(stepping: torch.optim.Optimizer, ready: list[torch.Tensor]) -> bool:
    """Whether all gradients and learning rates are zero, as of the step by which torch.distributed.checkpoint makes an
    optimizer's state, in a process that may train nothing at all."""
    if any(group.get("lr", 1) != 0 for group in stepping.param_groups):
        return False
    gradients = [local_part(each.grad) for each in ready]
    if is_capturing() or any(grad.is_meta or grad.layout is not torch.strided for grad in gradients):
        return False
    return not any(grad.any() for grad in gradients)


def _listed(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
