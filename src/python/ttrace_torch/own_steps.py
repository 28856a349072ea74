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
        self._before: dict[int, list[torch.Tensor]] = {}  # by number of the chunk, when the iteration first called it
        self._hooked = WeakTensorKeyDictionary()  # parameters
        self._got_gradients = False

    def install(self) -> None:
        self._collector.on_microbatch.append(self._see)
        self._collector.has_stepped_itself = self._has_stepped

    def _see(self, chunk: Chunk) -> None:
        """Before each outermost call of a chunk with gradients."""
        if self._has_optimizer() or is_capturing():
            return
        for _, parameter in chunk.parameters():
            if parameter.requires_grad and parameter.is_leaf and parameter not in self._hooked:
                self._hooked[parameter] = parameter.register_post_accumulate_grad_hook(self._on_gradient)
        self._before.setdefault(chunk.number, _elements_of(chunk))

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        self._got_gradients = True

    def _has_stepped(self) -> bool:
        """Whether parameters have changed since this was last the case, behind a backward."""
        if not self._got_gradients or self._has_optimizer() or is_capturing():
            return False
        chunks = {chunk.number: chunk for chunk in self._collector.clock.chunks.values()}
        if all(_are_equal(elements, _elements_of(chunks[number])) for number, elements in self._before.items()):
            return False
        self._before.clear()
        self._got_gradients = False
        return True

    def _has_optimizer(self) -> bool:
        return next(iter(self._optimizers()), None) is not None


def _elements_of(chunk: Chunk) -> list[torch.Tensor]:
    """Copies of some elements of each parameter that is trained."""
    elements = []
    for _, parameter in chunk.parameters():
        part = local_part(parameter.detach())
        if parameter.requires_grad and part.numel() > 0 and not part.is_meta and part.layout is torch.strided:
            elements.append(part.reshape(-1)[:: max(1, part.numel() // _ELEMENTS)].clone())
    return elements


def _are_equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(
        one.shape == other.shape and torch.equal(one, other) for one, other in zip(some, others, strict=True)
    )
