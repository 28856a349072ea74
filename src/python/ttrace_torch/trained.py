"""The account of what the program trains: parameters that want gradients, whether they get one or not, and the
optimizers that have them. A tensor that nobody trains shows nothing in what is recorded; here it has a name."""

from collections.abc import Iterable
from typing import NamedTuple

import torch

from .collector import Collector
from .masters import TrainedParameter, trained_parameters

Key = tuple[int, str]  # chunk and name


class Owner(NamedTuple):
    optimizer: str | None  # its class with the module; "": no optimizer has the parameter; None: nobody knows
    number: int = 0  # of the optimizer among the program's
    group: int = 0


class Account:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._owners: dict[Key, Owner] = {}

    def look(
        self,
        optimizers: Iterable[tuple[str, list[list[torch.Tensor]]]],
        with_gradients: set[Key],
        of_no_module: list[TrainedParameter],
    ) -> None:
        """At the end of a recorded iteration. `optimizers`: the program's, as they were made, each with its
        class and its parameters by group; `with_gradients`: what
        got some in it, frozen or not."""
        every = [trained for chunk in self._collector.clock.chunks.values() for trained in trained_parameters(chunk)]
        every += of_no_module
        owners, knows_all = _owners(optimizers, every)
        for trained in every:
            key = trained.chunk, trained.name
            if not (_wants_gradient(trained) or key in with_gradients or key in self._owners):
                continue
            owner = owners.get(id(trained.share.stepped)) or owners.get(id(trained.share.held))
            if owner is not None or key not in self._owners:
                self._owners[key] = owner or Owner("" if knows_all else None)
        self._collector.optimizer_steps.trained = self._owners


def _owners(
    optimizers: Iterable[tuple[str, list[list[torch.Tensor]]]], every: list[TrainedParameter]
) -> tuple[dict[int, Owner], bool]:
    """By id of what optimizers list; and whether all of that is known to be some parameter's."""
    owners = {}
    for number, (name, groups) in enumerate(optimizers):
        for index, parameters in enumerate(groups):
            owners |= {id(parameter): Owner(name, number, index) for parameter in parameters}
    known = {id(tensor) for each in every for tensor in (each.share.stepped, each.share.held)}
    return owners, owners.keys() <= known


def _wants_gradient(trained: TrainedParameter) -> bool:
    tensors = (trained.share.held, trained.share.stepped)
    return any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)
