"""Dumps of MindStudio's msprobe (PyPI: mindstudio-probe), task `tensor`: `step0/rank0/dump.json` and the tensors
that it names, in `dump_tensor_data`. Its hooks run around modules as those of ttrace's collector do, so that a call of
a module has the same name in both.

Left out is what is not what a trace means by it. The output of a module's backward is the gradient that this module
alone gives its input; a trace's grad_input is that of the input, to which all that uses it has added (a residual path,
for one). parameters_grad is the parameter's accumulated gradient: a micro-batch's own only for the first one."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttrace_torch.library import Kind, Pass, TensorId, microbatch_of

from .options import Options
from .refusal import Refused, one_line, shown
from .source_files import files_below, is_folder, member
from .tensor_files import tensors_in
from .trace import TraceWriter

_DUMP, _TENSORS = "dump.json", "dump_tensor_data"
_MOST_JSON_BYTES = 1 << 30
_ROOT = "(model)"  # the collector's name of the outermost module
# `Module.layers.0.Linear.forward.1`, or with the number of a model in a list `Module.0.layers...`; the class is last.
_CALL = re.compile(r"Module\.(?:(?P<path>.*)\.)?(?P<class>[^.]+)\.(?P<pass>forward|backward)\.(?P<call>[0-9]{1,9})")
_GRADIENTS = re.compile(r"Module\.(?:(?P<path>.*)\.)?(?P<class>[^.]+)\.parameters_grad(?:\.(?P<call>[0-9]{1,9}))?")


@dataclass(frozen=True)
class _Found:
    """A tensor of a dump. `suffix`: the member, ":0" or ""; of a parameter its own name."""

    kind: Kind
    path: str
    suffix: str
    call: int
    module_class: str
    file: str


def import_msprobe(options: Options, open_trace: Callable[[set[int]], TraceWriter]) -> None:
    """Raises Refused."""
    if len(options.sources) != 1 or not is_folder(options.sources[0]):
        raise Refused("msprobe: expected one SOURCE, the folder dump_path of its configuration")
    dumps = list(_dumps(options.sources[0]))
    with open_trace({rank for _, rank, _ in dumps}) as trace:
        for iteration, rank, path in dumps:
            _import_dump(trace, iteration, rank, path)
        if trace.tensors == 0:
            raise Refused(f"{one_line(str(options.sources[0]))}: no tensor of a module (level L0 or mix)")
        trace.finish()


def _dumps(source: Path) -> Iterator[tuple[int, int, Path]]:
    """Step, rank and path of each dump.json."""
    found = False
    for relative, path in files_below(source, (_DUMP,)):
        folders = ["", *source.resolve().parts[-2:], *relative.split("/")[:-1]]
        step = _number_behind("step", folders)
        # `proc` and a process's number stand for a program without torch.distributed.
        rank = 0 if folders[-1].startswith("proc") else _number_behind("rank", folders)
        found = True
        yield step or 0, rank or 0, path
    if not found:
        raise Refused(f"{one_line(str(source))}: no {_DUMP}; expected a dump of msprobe with the task tensor")


def _number_behind(word: str, folders: list[str]) -> int | None:
    numbers = [folder[len(word) :] for folder in folders if folder.startswith(word)]
    return int(numbers[-1]) if numbers and re.fullmatch("[0-9]{1,9}", numbers[-1]) else None


def _import_dump(trace: TraceWriter, iteration: int, rank: int, path: Path) -> None:
    data = _data_of(path)
    listed = any(re.match(r"Module\.[0-9]+\.\.", name) for name in data)  # several models: each has its root
    found = [item for name, entry in data.items() for item in _tensors_of(name, entry, path, trace)]
    calls = _calls_of(found, listed)
    for item in found:
        chunk, module = _split(item.path, listed)
        if item.kind in (Kind.PARAM, Kind.PARAM_GRAD):
            microbatch, name = microbatch_of(item.kind, item.call), f"{module}.{item.suffix}" if module else item.suffix
        else:
            microbatch, number = divmod(item.call, calls[item.path])
            name = f"{module or _ROOT}{item.suffix}{f'#{number}' if number else ''}"
        file = member(path.parent / _TENSORS, item.file, path)
        tensors = list(tensors_in(file, trace.budget, lambda keys, what, file=file: None))
        if len(tensors) != 1 or tensors[0][0]:
            raise Refused(f"{one_line(str(file))}: expected one tensor")
        tensor_id = TensorId(iteration, microbatch, chunk, Pass.FORWARD, item.kind, name)
        trace.record(rank, tensor_id, tensors[0][1], str(file), module_class=item.module_class)


def _data_of(path: Path) -> dict[str, Any]:
    where = one_line(str(path))
    if path.stat().st_size > _MOST_JSON_BYTES:
        raise Refused(f"{where}: larger than {_MOST_JSON_BYTES} bytes; expected a dump.json of msprobe")
    try:
        dump = json.loads(path.read_bytes())
        task, data = dump["task"], dump["data"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Refused(f"{where}: expected a dump.json of msprobe, with task and data") from None
    if task != "tensor" or not isinstance(data, dict):
        raise Refused(
            f"{where}: is of the task {shown(task)}, which keeps no tensors; expected a dump with the task tensor"
        )
    return data


def _tensors_of(name: str, entry: Any, where: Path, trace: TraceWriter) -> Iterator[_Found]:
    entry = entry if isinstance(entry, dict) else {}
    call = _CALL.fullmatch(name)
    gradients = _GRADIENTS.fullmatch(name)
    if call is None and gradients is None:
        trace.leave_out(name, "entries of functions, not of modules")
        return
    path = (call or gradients)["path"] or ""
    module_class = (call or gradients)["class"]
    number = int((call or gradients)["call"] or 0)
    if gradients and number > 0:
        trace.leave_out(name, "accumulated gradients of later micro-batches")
        return
    if gradients:
        members = [(Kind.PARAM_GRAD, parameter, items) for parameter, items in entry.items()]
    elif call["pass"] == "forward":
        members = [(Kind.INPUT, "", entry.get("input_args")), (Kind.INPUT, "", entry.get("input_kwargs"))]
        members.append((Kind.OUTPUT, "", entry.get("output")))
    else:
        members = [(Kind.GRAD_OUTPUT, "", entry.get("input"))]
        for _, file in _files_of(entry.get("output"), Kind.GRAD_INPUT, where, trace):
            trace.leave_out(file, "gradients that one module alone gives its input")
    for kind, parameter, items in members:
        for suffix, file in _files_of(items, kind, where, trace):
            yield _Found(kind, path, parameter or suffix, number, module_class, file)
    if call and call["pass"] == "forward" and number == 0 and isinstance(entry.get("parameters"), dict):
        for parameter, item in entry["parameters"].items():
            for _, file in _files_of([item], Kind.PARAM, where, trace):
                yield _Found(Kind.PARAM, path, str(parameter), 0, module_class, file)


def _files_of(items: Any, kind: Kind, where: Path, trace: TraceWriter) -> Iterator[tuple[str, str]]:
    """Member, as the collector calls it, and file."""
    found = []
    for suffix, file in _members(items, ""):
        trace.budget.take(len(suffix), where)
        found.append((suffix, file))
    positional = isinstance(items, list)
    only = positional and (len(items) == 1 if kind in (Kind.INPUT, Kind.GRAD_INPUT) else len(found) == 1)
    for suffix, file in found:
        is_number = all(part.isdigit() for part in suffix[1:].split("."))
        yield ("" if only and is_number and len(found) == 1 else suffix), file


def _members(item: Any, suffix: str) -> Iterator[tuple[str, str]]:
    if isinstance(item, dict) and isinstance(item.get("data_name"), str):
        yield suffix, item["data_name"]
        return
    if suffix.count(".") > 64:
        raise Refused("a dump that nests its values too deep; expected what msprobe writes")
    pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, value in pairs:
        yield from _members(value, f"{suffix}.{key}" if suffix else f":{key}")


def _split(path: str, listed: bool) -> tuple[int, str]:
    """Chunk and the module's path within it."""
    if not listed:
        return 0, path
    number, _, rest = path.partition(".")
    return int(number) if number.isdigit() else 0, rest


def _calls_of(found: list[_Found], listed: bool) -> dict[str, int]:
    """Of each module, how often a micro-batch calls it: the root once, and where the dump lacks it most modules."""
    calls: dict[str, int] = defaultdict(int)
    for item in found:
        if item.kind in (Kind.INPUT, Kind.OUTPUT):
            calls[item.path] = max(calls[item.path], item.call + 1)
    most = Counter(calls.values()).most_common(1)
    result = defaultdict(lambda: 1)
    for path, count in calls.items():
        root = f"{path.partition('.')[0]}." if listed else ""
        microbatches = calls[root] if root in calls else most[0][0]
        if count % microbatches == 0:
            result[path] = count // microbatches
    return result
