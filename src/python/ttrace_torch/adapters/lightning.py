"""Lightning: one process calls the LightningModule's `training_step` directly, and its modules from there; under DDP or
FSDP the wrapper's forward is redirected to it. Here the direct call becomes one of the LightningModule, too, so that
both have the same names and micro-batches."""

import functools
import sys
from typing import Any

from .. import patches
from .adapter import Adapter, Observe


class Lightning(Adapter, module="lightning.pytorch.strategies.strategy"):
    def observe_calls(self, observe: Observe) -> None:
        strategy = sys.modules[self.module].Strategy
        training_step = strategy.training_step

        @functools.wraps(training_step)
        def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.model is not self.lightning_module:
                return training_step(self, *args, **kwargs)
            return observe(functools.partial(training_step, self), self.lightning_module, args, kwargs)

        patches.replace(strategy, "training_step", patched)


class PyTorchLightning(Lightning, module="pytorch_lightning.strategies.strategy"):
    """The same under its older name."""
