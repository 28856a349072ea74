"""What a program calls without gradients, where nothing else may come: an evaluation, a rollout, an engine.

Whether a program trains shows late: many evaluate first, or call a teacher before the student. So the calls before
the first with gradients are recorded by a collector of their own, into a directory inside the trace's, which is removed
when the program trains. `ttrace collect` takes it for the trace where no process of the job has trained
(src/workflow/collected.cpp). More calls than `_MOST_CALLS` are not recorded unasked: `--no-grad` is for those."""

import atexit
import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any

import torch

from . import problems
from .buffers import Buffers
from .collector import Collector
from .config import Choice, Config
from .coordinates import rank_and_world_size
from .gradients import Gradients
from .looks import Looks
from .modules import Modules
from .tensors import has_parameters

DIRECTORY = "no-grad"  # inside the trace's: kWithoutGradName in src/workflow/collected.cpp
_MOST_CALLS = 32  # of models, by the program itself


class WithoutGrad:
    def __init__(self, config: Config):
        self._config = _configuration(config)
        problems.will_raise(self._config.directory)  # nobody hears of them where the program trains
        self.collector = Collector(self._config, announces=False)
        self._modules = Modules(self.collector, Gradients(self.collector), None, None)
        Buffers(self.collector, Looks(self.collector)).install()
        self._calls = 0
        os.register_at_fork(after_in_child=self.collector.after_fork)
        atexit.register(self.collector.at_exit)

    def takes(self) -> bool:
        """Whether the call of a module that begins now is one of those, or inside one."""
        return self.collector.active and (bool(self._modules.stack.frames) or not torch.is_grad_enabled())

    def observe(self, call: Callable, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
        """As that of `Modules`."""
        if not self._modules.stack.frames and not self.collector.safely(self._begin, module):
            return call(*args, **kwargs)
        return self._modules.observe(call, module, args, kwargs)

    def _begin(self, module: torch.nn.Module) -> bool:
        """Before a call by the program itself: whether it is recorded."""
        if has_parameters(module):
            if self._calls == 0:
                os.makedirs(self._config.directory, exist_ok=True)
            self._calls += 1
        if self._calls > _MOST_CALLS:
            raise problems.CollectError(
                f"the program calls its models without gradients alone, and more than {_MOST_CALLS} times; expected "
                "--no-grad, which records all such calls, or a program that trains"
            )
        return self._calls > 0

    def forget(self) -> None:
        """The program trains."""
        atexit.unregister(self.collector.at_exit)
        if self._calls == 0:
            return
        with contextlib.suppress(Exception):
            self.collector.stop(None)
        with contextlib.suppress(OSError):  # other ranks may still have files there
            for name in os.listdir(self._config.directory):
                if name.startswith(f"rank-{rank_and_world_size()[0]:05}."):
                    os.remove(os.path.join(self._config.directory, name))
            os.rmdir(self._config.directory)


def _configuration(config: Config) -> Config:
    said = config.provenance.get("selection") or {"reason": "calls without gradients were recorded alone"}
    chosen = config.choice or Choice((), (), frozenset(), None, said["reason"])
    return dataclasses.replace(
        config,
        directory=os.path.join(config.directory, DIRECTORY),
        may_go_on=False,
        choice=dataclasses.replace(chosen, no_grad=True),
        provenance={**config.provenance, "selection": {**said, "no_grad": True}},
    )
