"""Traces, and the logical tensors that their shards make up."""

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import InputError
from ._slices import box_of
from ._typed import typed
from .report_types import Finding
from .reports import findings_of

# NumPy and ml_dtypes are imported where an array is made: the program `ttrace` of a wheel starts from this package.
if TYPE_CHECKING:
    import numpy
    from numpy.typing import DTypeLike, NDArray

_MOST_NAMES_SHOWN = 5
# Dtypes that NumPy has by another package's help.
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def open(
    directory: "str | os.PathLike[str]",
    *,
    annotations: "str | os.PathLike[str]" = "",
    settings: Sequence[str] = (),
    axes: str = "",
    reference: "Trace | None" = None,
) -> "Trace":
    """Opens the trace in `directory`, or what another program saved there (a checkpoint, arrays): the index is read, no
    tensor is.

    `annotations`, `settings` and `axes` are what `ttrace show` takes as `-a`, `--set` and `--axes`: how the ranks hold
    the tensors, where the program has not said it. `reference` is the trace that the model's sizes are taken from (how
    many layers there are), where this one is of a part of it. Raises InputError.

    >>> trace = ttrace.open("candidate", annotations="gpt.yaml")
    >>> trace
    <ttrace.Trace candidate: 2 ranks, tp=2, 5 tensors>
    """
    model = None if reference is None else reference._core
    with typed("open"):
        core = _core.open_trace(
            os.fspath(directory), sys.executable, os.fspath(annotations), list(settings), axes, model
        )
    return Trace(os.fspath(directory), core)


class Trace:
    """What one run of a program has left behind, with the logical tensors that its ranks' shards make up, in order of
    execution. `open` makes one. It and its tensors read the files of the trace: leave those where they are."""

    def __init__(self, directory: str, core: _core.Trace) -> None:
        self._core = core
        self.directory = directory
        """As it was given to `open`."""
        self.run_id = core.run_id
        self.world_size = core.world_size
        """How many ranks the run had."""
        self.axes = core.axes
        """Sizes by name, as in {"tp": 2, "dp": 4}; empty where there is one rank, or nobody said them."""
        self.compute_dtype = core.compute_dtype
        """Of the model, as PyTorch calls it ("bfloat16"), or ""."""
        self.complete = core.complete
        """Whether all ranks are there and have ended their recording well."""

    @property
    def provenance(self) -> dict[str, Any]:
        """What the trace says of how it was made: command, versions, start, commit."""
        found: dict[str, Any] = json.loads(self._core.provenance)
        return found

    @property
    def left_out(self) -> tuple[Finding, ...]:
        """Why tensors could not be put together: a missing rank, shards that do not fit or that overlap."""
        return findings_of(self._core.left_out())

    @property
    def names(self) -> list[str]:
        """Of all tensors, each once, in order of execution.

        >>> ttrace.open("reference").names
        ['mlp.weight', 'attention', 'mlp']
        """
        return list(dict.fromkeys(tensor.name for tensor in self))

    def tensors(
        self, pattern: str = "", *, kind: str | None = None, iteration: int | None = None, microbatch: int | None = None
    ) -> "list[Tensor]":
        """Those whose name `pattern` matches, a glob or a dotted suffix as in annotations; "" matches all. `kind` is
        input, output, grad_output, main_grad, ... (the glossary has them). In order of execution. Raises InputError
        where there is none.

        >>> for tensor in ttrace.open("reference").tensors("mlp", kind="output"):
        ...     print(tensor)
        mlp output, iteration 0, micro-batch 0: bfloat16[4, 6]
        mlp output, iteration 0, micro-batch 1: bfloat16[4, 6]
        """
        with typed("tensors"):
            return [Tensor(core) for core in self._core.choose(pattern, kind, iteration, microbatch)]

    def tensor(
        self, pattern: str, *, kind: str | None = None, iteration: int | None = None, microbatch: int | None = None
    ) -> "Tensor":
        """The one that `tensors` would find. Where no iteration or micro-batch is asked for, that of the first one.
        Raises InputError where there is none, or several that differ in more than these.

        >>> ttrace.open("reference").tensor("mlp", kind="output").shape
        (4, 6)
        """
        found = self.tensors(pattern, kind=kind, iteration=iteration, microbatch=microbatch)
        others = list(dict.fromkeys(f"{tensor.name} {tensor.kind}" for tensor in found if not tensor.recomputed))
        if len(others) > 1:
            shown = ", ".join(others[:_MOST_NAMES_SHOWN]) + (", ..." if len(others) > _MOST_NAMES_SHOWN else "")
            expected = "expected one: a longer name, or kind="
            raise InputError(f"'{pattern}': {len(others)} tensors match: {shown}; {expected}")
        return found[0]

    def __iter__(self) -> "Iterator[Tensor]":
        return iter(self.tensors())

    def __len__(self) -> int:
        return len(self._core.choose())

    def __repr__(self) -> str:
        ranks = f"{self.world_size} rank" + ("" if self.world_size == 1 else "s")
        axes = "".join(f", {name}={size}" for name, size in self.axes.items())
        return f"<ttrace.Trace {self.directory}: {ranks}{axes}, {len(self)} tensors>"


@dataclass(frozen=True)
class Piece:
    """A box of a logical tensor that one rank holds. Pieces of several replicas hold the same elements; the elements
    are the sums of those of all terms of a replica."""

    rank: int
    start: tuple[int, ...]
    size: tuple[int, ...]
    replica: int
    term: int


class Tensor:
    """A logical tensor of a trace, or a slice of one. Nothing is read until `numpy()`, or `numpy.asarray`, is called,
    and then no element that was not asked for.

    >>> weight = ttrace.open("candidate", annotations="gpt.yaml").tensor("mlp.weight")
    >>> weight
    <ttrace.Tensor mlp.weight param, iteration 0: float32[4, 6]>
    >>> weight[1:3, -1].numpy()
    array([11., 17.], dtype=float32)
    """

    def __init__(self, core: _core.Tensor, dropped: frozenset[int] = frozenset()) -> None:
        self._core = core
        self._dropped = dropped  # dimensions of `core` that an index has dropped
        self.name = core.name
        self.kind = core.kind
        self.iteration = core.iteration
        self.microbatch = core.microbatch
        """None for parameters and what else belongs to an iteration."""
        self.recomputed = core.recomputed
        """Whether it is of the second forward of activation checkpointing."""
        self.module_class = core.module_class
        self.shape = tuple(size for dimension, size in enumerate(core.shape) if dimension not in dropped)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Of the array that `numpy()` makes."""
        return self.size * self.dtype.itemsize

    @property
    def dtype(self) -> "numpy.dtype[Any]":
        """The recorded one. Where the elements are sums of several ranks' terms, or were recorded with a scale, they
        are computed, and float64."""
        import numpy

        name = self._core.dtype()
        if name not in _OF_ML_DTYPES:
            return numpy.dtype(name)
        import ml_dtypes

        found: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, name))
        return found

    @property
    def rows(self) -> "NDArray[numpy.int64] | None":
        """Where experts hold a choice of tokens: which rows of dimension 0 of the logical tensor the rows here are."""
        import numpy

        return None if self._core.rows is None else numpy.array(self._core.rows, dtype=numpy.int64)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Which rank holds which part, in the dimensions of the whole tensor.

        >>> weight = ttrace.open("candidate", annotations="gpt.yaml").tensor("mlp.weight")
        >>> [(piece.rank, piece.start, piece.size) for piece in weight.pieces]
        [(0, (0, 0), (2, 6)), (1, (2, 0), (2, 6))]
        """
        return tuple(
            Piece(rank, tuple(start), tuple(size), replica, term)
            for rank, start, size, replica, term in self._core.pieces()
        )

    def numpy(self) -> "NDArray[Any]":
        """The elements, in a new array. bfloat16 and fp8 are dtypes of the package ml_dtypes."""
        import numpy

        array = numpy.empty(self._core.shape, self.dtype)
        self._core.copy_to(array.reshape(-1).view(numpy.uint8))
        return array.reshape(self.shape)

    def __array__(self, dtype: "DTypeLike | None" = None, copy: bool | None = None) -> "NDArray[Any]":
        if copy is False:
            raise ValueError("a tensor of a trace cannot be an array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __getitem__(self, index: object) -> "Tensor":
        """A slice as NumPy has it, which reads nothing: integers, slices of step 1 and an ellipsis."""
        visible = [dimension for dimension in range(len(self._core.shape)) if dimension not in self._dropped]
        begin, length, gone = box_of(index, self.shape)
        start, size = [0] * len(self._core.shape), list(self._core.shape)
        for place, dimension in enumerate(visible):
            start[dimension], size[dimension] = begin[place], length[place]
        return Tensor(self._core.part(start, size), self._dropped | {visible[place] for place in gone})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __str__(self) -> str:
        where = f", iteration {self.iteration}"
        where += "" if self.microbatch is None else f", micro-batch {self.microbatch}"
        where += ", recompute" if self.recomputed else ""
        return f"{self.name} {self.kind}{where}: {self.dtype}{list(self.shape)}"

    def __repr__(self) -> str:
        return f"<ttrace.Tensor {self}>"
