"""`ttrace_torch.record`: a tensor that the program itself names and places."""

from collections.abc import Sequence

import torch

from .collector import Collector
from .library import Kind
from .mapping import Axes, Slice, mapping_of
from .modules import Modules
from .problems import CollectError

_KINDS = {kind.text: kind for kind in (Kind.OUTPUT, Kind.INPUT, Kind.GRAD_OUTPUT, Kind.GRAD_INPUT, Kind.SCALAR)}


class ExplicitRecording:
    def __init__(self, collector: Collector, modules: Modules):
        self._collector, self._modules = collector, modules

    def record(
        self,
        name: str,
        tensor: torch.Tensor,
        kind: str,
        axes: Axes | None,
        shape: Sequence[int] | None,
        slices: Sequence[Slice] | None,
    ) -> None:
        """The arguments are those of `ttrace_torch.record`."""
        self._collector.safely(self._record, name, tensor, kind, axes, shape, slices)

    def _record(
        self,
        name: str,
        tensor: torch.Tensor,
        kind: str,
        axes: Axes | None,
        shape: Sequence[int] | None,
        slices: Sequence[Slice] | None,
    ) -> None:
        if kind not in _KINDS:
            raise CollectError(f"record('{name}'): kind '{kind}'; expected one of {', '.join(_KINDS)}")
        frame = self._modules.current_frame()
        if frame is None:
            return
        numbered = name + frame.call_counts.next_suffix(name)
        file = self._collector.open()
        position = file.require_axes(f"record('{name}', axes=...)") if axes else file.position
        mapping = mapping_of(name, position, axes, shape, slices)
        tensor_id = frame.microbatch.tensor_id(_KINDS[kind], numbered, frame.pass_)
        self._collector.record(tensor_id, tensor, mapping=mapping)
