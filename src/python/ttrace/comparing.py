"""Two things held against each other: dicts of arrays, checkpoints, files or traces."""

import contextlib
import json
import os
import pathlib
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _installation
from ._core import InputError
from .check_options import CheckOptions
from .reports import Report, check, holds_trace
from .traces import Trace

if TYPE_CHECKING:  # Python 3.10 has it from there alone
    from typing_extensions import Unpack


class NotSame(AssertionError):
    """Two things differ, or too little of them was compared to say that they do not. The text is the report."""

    report: Report
    """As `check` returns it."""

    def __init__(self, report: Report, text: str) -> None:
        super().__init__(text)
        self.report = report


def compare(reference: Any, candidate: Any, **options: "Unpack[CheckOptions]") -> Report:
    """Holds the candidate against the reference, and returns the report where they are the same; raises NotSame, whose
    text is the report, where they are not. Either is a dict of arrays (a state dict, NumPy's, PyTorch's or JAX's,
    nested or not), an array, a `Trace`, or the path of what `ttrace check` takes: a trace, a checkpoint (safetensors, a
    folder of Hugging Face, DCP, .pt), .npz, .npy, a dump. Options are those of `check`: without `tolerance` all bits
    must be equal. Two arrays, or files of one, are compared whatever their names. Raises InputError where it could not
    look.

    >>> import numpy
    >>> ttrace.compare({"w": numpy.ones(3)}, {"w": numpy.ones(3)}).counts.passed
    1
    >>> ttrace.compare({"w": numpy.ones(3)}, {"w": numpy.zeros(3)})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ttrace.NotSame: different
    first wrong tensor: w param, iteration 0
    ...
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    with contextlib.ExitStack() as kept:
        paths = [
            _path_of(thing, other, side, kept)
            for thing, other, side in ((reference, candidate, "reference"), (candidate, reference, "candidate"))
        ]
        report = check(paths[1], paths[0], **options)
    if report.same:
        return report
    text = str(report)
    if any(_is_in_memory(thing) for thing in (reference, candidate)):  # nothing is left that a command could look at
        text = "\n".join(line for line in text.split("\n") if not line.startswith("next: "))
    raise NotSame(report, text)


def _is_in_memory(thing: Any) -> bool:
    return not isinstance(thing, (Trace, str, os.PathLike))


def _path_of(thing: Any, other: Any, side: str, kept: contextlib.ExitStack) -> str:
    if isinstance(thing, Trace):
        return os.fspath(thing.directory)
    if isinstance(thing, (str, os.PathLike)):
        return str(os.fspath(thing))
    directory = pathlib.Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="ttrace-"))) / side
    _write(dict(_arrays_in(thing, "", side)), directory, side, holds_less=_is_recorded(other))
    return str(directory)


def _is_recorded(thing: Any) -> bool:
    """Whether it holds more than parameters by design."""
    if _is_in_memory(thing):
        return False
    return isinstance(thing, Trace) or holds_trace(os.fspath(thing))


def _arrays_in(thing: Any, name: str, side: str) -> Iterator[tuple[str, Any]]:
    """Names and arrays of nested dicts."""
    if not isinstance(thing, Mapping):
        if not hasattr(thing, "dtype") or not hasattr(thing, "shape"):
            where = f"{side}: {name}" if name else side
            raise InputError(f"{where}: is a {type(thing).__name__}; expected an array, a dict of arrays, or a path")
        yield name or "array", thing
        return
    for key, value in thing.items():
        yield from _arrays_in(value, f"{name}.{key}" if name else str(key), side)


def _write(arrays: dict[str, Any], directory: pathlib.Path, side: str, *, holds_less: bool) -> None:
    """A trace of parameters, as of a checkpoint."""
    if not arrays:
        raise InputError(f"{side}: an empty dict; expected arrays by name")
    library, refusals = _installation.collector("library"), _installation.collector("arrays")
    provenance: dict[str, Any] = {"imported": {"format": "checkpoint", "sources": []}}
    if holds_less:
        provenance["not_seen"] = [{"reason": "arrays in memory", "everything": True}]
    directory.mkdir()
    where = side
    try:
        recorder = library.Recorder(
            str(_installation.LIBRARY), str(directory), run_id=str(uuid.uuid4()), rank=0, world_size=1, axes=""
        )
        recorder.describe("", json.dumps(provenance))
        for name, array in arrays.items():
            where = f"{side}: {name}"
            owner, view = _view_of(array)
            tensor_id = library.TensorId(0, library.NO_MICROBATCH, 0, library.Pass.FORWARD, library.Kind.PARAM, name)
            recorder.record(tensor_id, view)
            del owner  # lived until now
        recorder.close(complete=True)
    except (library.TraceError, refusals.NotRecordable) as error:
        raise InputError(f"{where}: {error}") from None


def _view_of(array: Any) -> tuple[Any, Any]:
    """What owns the memory, and where it is."""
    arrays = _installation.collector("arrays")
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        owner, view = arrays.view_of_array(arrays.array_of(array))
        return owner, view
    tensors = _installation.collector("tensors")
    if tensors.is_dtensor(array):
        raise arrays.NotRecordable("a DTensor, of which this process holds a part; expected its full_tensor()")
    try:
        host = tensors.to_host(array.detach())
    except tensors.NotTraceable as error:
        raise arrays.NotRecordable(str(error)) from None
    return host, tensors.view_of(host)
