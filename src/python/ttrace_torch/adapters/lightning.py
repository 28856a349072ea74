"""Lightning: one process calls the LightningModule's `training_step` directly, and its modules from there; under DDP or
FSDP the wrapper's forward is redirected to it. Here the direct call becomes one of the LightningModule, too, so that
both have the same names and micro-batches."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import patches

MODULES = ("lightning.pytorch.strategies.strategy", "pytorch_lightning.strategies.strategy")


def observe_training_steps(strategies: ModuleType, observe: Callable) -> None:
    """`strategies` is one of MODULES; `observe(call, module, args, kwargs)` observes a call of a module."""
    training_step = strategies.Strategy.training_step

    @functools.wraps(training_step)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.model is not self.lightning_module:
            return training_step(self, *args, **kwargs)
        return observe(functools.partial(training_step, self), self.lightning_module, args, kwargs)

    patches.replace(strategies.Strategy, "training_step", patched)
