"""Steps of programs that have no optimizer of PyTorch's: fastai's, or one that is written by hand. The parameters that
are trained have changed since the model was called, behind a backward that gave them gradients. Some elements of each
tell, which are looked at before a model is called again."""

from collections.abc import Callable, Iterable

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from .clock import Chunk
from .collector import Collector
from .tensors import is_capturing, local_part

_ELEMENTS = 8  # of a parameter


class OwnSteps:
    def __init__(self, collector: Collector, optimizers: Callable[[], Iterable[torch.optim.Optimizer]]):
        """`optimizers`: those of PyTorch's that the program has just now."""
        self._collector, self._optimizers = collector, optimizers
        # By number of the chunk, when the iteration first called it: its parameters, and elements of each.
        self._before: dict[int, list[tuple[torch.nn.Parameter, torch.Tensor]]] = {}
        self._hooked = WeakTensorKeyDictionary()  # parameters
        self._got_gradients = False

    def install(self) -> None:
        self._collector.on_microbatch.append(self._see)
        self._collector.has_stepped_itself = self._has_stepped

    def _see(self, chunk: Chunk) -> None:
        """Before each outermost call of a chunk with gradients."""
        if self._has_optimizer() or is_capturing():
            return
        for parameter in _trained_of(chunk):
            if parameter.is_leaf and parameter not in self._hooked:
                self._hooked[parameter] = parameter.register_post_accumulate_grad_hook(self._on_gradient)
        if chunk.number not in self._before:
            self._before[chunk.number] = [(parameter, _elements_of(parameter)) for parameter in _trained_of(chunk)]

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        self._got_gradients = True

    def _has_stepped(self) -> bool:
        """Whether parameters have changed since this was last the case, behind a backward."""
        if not self._got_gradients or self._has_optimizer() or is_capturing():
            return False
        kept = (item for of_chunk in self._before.values() for item in of_chunk)
        if all(torch.equal(elements, _elements_of(parameter)) for parameter, elements in kept):
            return False
        self._before.clear()
        self._got_gradients = False
        return True

    def _has_optimizer(self) -> bool:
        return next(iter(self._optimizers()), None) is not None


def _trained_of(chunk: Chunk) -> Iterable[torch.nn.Parameter]:
    """Those that have elements here."""
    for _, parameter in chunk.parameters():
        if parameter.requires_grad and not torch.nn.parameter.is_lazy(parameter):
            part = local_part(parameter.detach())
            if part.numel() > 0 and not part.is_meta and part.layout is torch.strided:
                yield parameter


def _elements_of(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Copies of some."""
    part = local_part(parameter.detach()).reshape(-1)
    return part[:: max(1, part.numel() // _ELEMENTS)].clone()
