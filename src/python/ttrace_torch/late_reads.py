"""Parameters that the program puts in place when their modules are called: what other ranks have stepped is sent after
the step, and a forward pre-hook waits for it. Behind the step, and where the model is called, their values are those of
the iteration before."""

import torch

from .collector import Collector
from .library import Kind, TensorId
from .masters import TrainedParameter
from .names import plain_class


class LateReads:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._pending: dict[int, list[tuple[TensorId, torch.Tensor]]] = {}  # by id of the module
        collector.has_late_reads = lambda: bool(self._pending)
        collector.finish_late_reads = self.finish

    def put_off(self, settled: list[TrainedParameter], stepped: set[int]) -> set[int]:
        """The ids of the parameters whose values after the step are read once their modules have been called, behind
        all hooks. `stepped`: ids of what optimizers of this rank have, which is in place."""
        if not self._collector.goes_on or self._collector.config.split:
            return set()
        modules, late = self._modules_with_hooks(), set()
        for trained in settled:
            held, share = trained.share.held, trained.share
            is_whole = share.owned is None and share.held_range is None
            module = modules.get(id(held))
            if module is None or not is_whole or id(held) in stepped:
                continue
            late.add(id(held))
            tensor_id = self._collector.clock.parameter_id(trained.chunk, Kind.PARAM_AFTER, trained.name)
            if id(module) not in self._pending:
                self._read_behind_hooks(module)
            self._pending.setdefault(id(module), []).append((tensor_id, held))
        return late

    def finish(self) -> None:
        """What is in no module that has been called is read as it is."""
        for key in list(self._pending):
            self._read(key)

    def _modules_with_hooks(self) -> dict[int, torch.nn.Module]:
        """By ids of their own parameters."""
        return {
            id(parameter): module
            for chunk in self._collector.clock.chunks.values()
            for module in chunk.base.modules()
            if module._forward_pre_hooks and plain_class(type(module)) is type(module)
            for parameter in module._parameters.values()
            if parameter is not None
        }

    def _read_behind_hooks(self, module: torch.nn.Module) -> None:
        def read(*_: object) -> None:
            handle.remove()
            self._collector.safely(self._read, id(module))

        handle = module.register_forward_pre_hook(read)

    def _read(self, key: int) -> None:
        for tensor_id, held in self._pending.pop(key, []):
            self._collector.record(tensor_id, held)
        if not self._pending:
            self._collector.end_where_over()
