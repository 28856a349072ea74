"""The trace that is written: a file for each rank, whole or not there."""

import contextlib
import json
import math
import os
import shutil
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from ttrace_torch.arrays import NotRecordable, view_of_array
from ttrace_torch.library import Recorder, TensorId, TensorView, TraceError
from ttrace_torch.names import recordable
from ttrace_torch.not_seen import NotSeen

from .options import Options
from .places import Places
from .refusal import Refused, first_line, one_line
from .stored_tensor import InMemory, itemsize_of

_MOST_RANKS = 1 << 16


def world_size_of(ranks: set[int], axes: str) -> int:
    """Refuses where a rank is missing: what is compared would be a part of the tensors."""
    sizes = [item.split("=", 1)[1] for item in axes.split("/")[0].split(",") if "=" in item]
    world_size = 1
    for size in filter(str.isdecimal, sizes):
        world_size *= int(size)
    if not axes:
        world_size = max(ranks) + 1
    if not 0 < world_size <= _MOST_RANKS:
        raise Refused(f"{world_size} ranks; expected at most {_MOST_RANKS}")
    other = sorted(ranks ^ set(range(world_size)))
    if other:
        is_there = other[0] in ranks
        raise Refused(
            f"rank {other[0]} is {'' if is_there else 'not '}there; expected tensors of the ranks 0 to {world_size - 1}"
            f"{', as in --axes ' + axes if axes else ', or --pattern and --axes that say otherwise'}"
        )
    return world_size


class TraceWriter:
    """Writes beside its place, which the trace takes by `finish`; what is not closed so is removed. A process that is
    killed leaves nothing at the place that a second import would trip over."""

    def __init__(self, options: Options, ranks: set[int]):
        self._options, self._world_size = options, world_size_of(ranks, options.axes)
        self.budget = options.budget
        self._run_id = str(uuid.uuid4())
        self._folder: Path | None = None
        is_there = options.output.exists() or options.output.is_symlink()
        if is_there and (not options.output.is_dir() or any(options.output.iterdir())):
            raise Refused(f"{one_line(str(options.output))}: there already; expected a new or empty directory")
        self._recorders: dict[int, Recorder] = {}
        self._not_seen: dict[int, NotSeen] = {}
        self._places = Places()
        self.ranks = self._world_size
        self.tensors = self.bytes = 0
        self.left_out: Counter[str] = Counter()  # by what they are
        self.first_left_out: dict[str, str] = {}

    def __enter__(self) -> "TraceWriter":
        place = self._options.output.resolve()
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".partial", dir=place.parent))
            self._folder.chmod(0o777 & ~_umask())
        except OSError as error:
            where = one_line(str(self._options.output))
            raise Refused(f"{where}: {error.strerror}; expected a place to write") from None
        try:
            for rank in range(self._world_size):  # all: a rank without tensors is there, too
                self._open(rank)
        except BaseException:  # a signal, too: nobody calls `__exit__` yet
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for recorder in self._recorders.values():
            _close_quietly(recorder)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def leave_out(self, name: str, what: str, count: int = 1) -> None:
        """An entry that is no tensor, or not one of those that are asked for."""
        self.left_out[what] += count
        self.first_left_out.setdefault(what, one_line(name))

    def describe_left_out(self) -> list[str]:
        return [f"{count} {what}, such as {self.first_left_out[what]}" for what, count in self.left_out.items()]

    def record(self, rank: int, tensor_id: TensorId, tensor: Any, where: str, *, module_class: str = "") -> bool:
        """False, and said in the trace, where a trace cannot hold such a tensor. Raises Refused."""
        try:
            kept, view = _view_of(tensor)
        except NotRecordable as error:
            self._not_seen[rank].add(
                f"imported without it: {error}", (tensor_id.kind,), tensor_id.iteration, 0, tensors=[tensor_id.name]
            )
            self.leave_out(tensor_id.name, str(error))
            return False
        except (RuntimeError, MemoryError) as error:  # PyTorch's, of memory that is short as well
            raise Refused(f"{one_line(where)}: {first_line(error)}; expected a tensor that can be read") from None
        size = _bytes(view)
        self.budget.take_tensor(size, tensor_id.name, where)
        is_in_place = self._options.places and self._places.add(tensor_id.name, view, size, self.tensors + 1)
        free = shutil.disk_usage(self._place()).free
        if size > free and not is_in_place:
            raise Refused(
                f"{one_line(where)}: a tensor of {size} bytes; expected no more than the {free} that are free"
            )
        try:
            if not is_in_place:
                self._recorders[rank].record(tensor_id, view, module_class=module_class)
        except TraceError as error:
            raise self._refused(where, error) from None
        del kept
        self.tensors += 1
        self.bytes += size
        return True

    def finish(self) -> None:
        """Raises Refused."""
        recorders, self._recorders = self._recorders, {}
        try:
            for rank, recorder in recorders.items():
                recorder.describe("", self._provenance(rank))
                recorder.close(complete=True)
            if self._options.places:
                self._places.write(self._options.places)
            self._place().rename(self._options.output.resolve())
            self._folder = None
        except TraceError as error:
            self._recorders = recorders
            raise self._refused(str(self._options.output), error) from None

    def _place(self) -> Path:
        assert self._folder is not None, "the writer was not entered"
        return self._folder

    def _refused(self, where: str, error: TraceError) -> Refused:
        return Refused(one_line(f"{where}: {error}".replace(str(self._place()), str(self._options.output))))

    def _open(self, rank: int) -> None:
        try:
            self._recorders[rank] = Recorder(
                self._options.library,
                str(self._place()),
                run_id=self._run_id,
                rank=rank,
                world_size=self._world_size,
                axes=self._options.axes,
            )
            self._not_seen[rank] = NotSeen()
        except TraceError as error:
            raise Refused(one_line(str(error).replace(str(self._place()), str(self._options.output)))) from None

    def _provenance(self, rank: int) -> str:
        statements = self._not_seen[rank].as_list()
        if self._options.partial:
            statements.append({"reason": f"imported from {self._options.format} with --partial", "everything": True})
        imported = {
            "format": self._options.format,
            "sources": [recordable(str(path)) for path in self._options.sources],
            "left_out": self.describe_left_out(),
        }
        provenance = {
            "imported": imported,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "axes": self._options.axes,
        }
        return json.dumps(provenance | ({"not_seen": statements} if statements else {}))


def _umask() -> int:
    """Of this process, which has one thread."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _view_of(tensor: Any) -> tuple[Any, TensorView]:
    """What owns the memory, and where it is."""
    if isinstance(tensor, InMemory):
        return tensor.owner, tensor.view
    if type(tensor).__module__.partition(".")[0] == "numpy":
        return view_of_array(tensor)
    from ttrace_torch import tensors

    if tensors.is_dtensor(tensor):
        raise Refused("a DTensor, of which a file holds one rank's part; expected plain tensors")
    try:
        host = tensors.to_host(tensor)
    except tensors.NotTraceable as error:
        raise NotRecordable(str(error)) from None
    return host, tensors.view_of(host)


def _bytes(view: TensorView) -> int:
    return itemsize_of(view.dtype) * math.prod(view.shape)


def _close_quietly(recorder: Recorder) -> None:
    """Of a trace that is thrown away."""
    with contextlib.suppress(TraceError):
        recorder.close(complete=False)
