"""A module call in progress: which call of which micro-batch it is, and what its tensors are called."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from .clock import CallCounts, Chunk, Microbatch
from .library import Kind, Pass, TensorId

if TYPE_CHECKING:
    from .draws import State


@dataclass(slots=True, eq=False)
class Frame:
    microbatch: Microbatch
    pass_: Pass
    call_counts: CallCounts  # of that micro-batch in that pass
    names: dict[int, str | None]  # id of a module -> its name; None for a wrapper
    chunk: Chunk | None  # None: not called in one
    path: str | None = None  # the module's name; None: not recorded
    call_suffix: str = ""  # "#1" for the second call
    module_class: str = ""
    drawn_from: "State | None" = None  # of the generators, before the call drew in its own code: see draws.py
    # The program's tensor, the one that the module is given in its place, and the latter's version: see rewrite.py.
    rewritten_inputs: list[tuple[torch.Tensor, torch.Tensor, int]] = field(default_factory=list)

    def tensor_name(self, member: str) -> str:
        """`member` is the suffix of a `Member` (members.py)."""
        return f"{self.path}{member}{self.call_suffix}"

    def tensor_id(self, kind: Kind, member: str) -> TensorId:
        return self.microbatch.tensor_id(kind, self.tensor_name(member), self.pass_)

    def forward_id(self, kind: Kind, member: str) -> TensorId:
        """The same for a recomputation as for the forward that it repeats; that of gradients."""
        return self.microbatch.tensor_id(kind, self.tensor_name(member))


class CallStack(threading.local):
    """The module calls in progress in this thread; None stands for one whose inside is not recorded."""

    def __init__(self) -> None:
        self.frames: list[Frame | None] = []
        # The state of the generators where a recorded call last began or ended.
        self.generators: State | None = None
        self.depth = 0  # how many calls of modules are in progress, recorded or not
        # The first sequence number of autograd's nodes in a graph that is going to be thrown away; None: there is none.
        self._thrown_away_from: int | None = None

    @contextlib.contextmanager
    def first_run(self) -> Iterator[None]:
        """Of what activation checkpointing runs twice, the second time with grad."""
        outer = self._thrown_away_from
        if outer is None and not torch.is_grad_enabled():
            self._thrown_away_from = torch.autograd._get_sequence_nr()
        try:
            yield
        finally:
            self._thrown_away_from = outer

    def is_thrown_away(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` is computed in a graph that no gradient will come to."""
        first = self._thrown_away_from
        if first is None:
            return False
        node = tensor.grad_fn
        return node is not None and node._sequence_nr() >= first
