"""The parameters of a checkpoint, as those before iteration 0."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ttrace_torch.library import NO_MICROBATCH, Kind, Pass, TensorId

from . import dcp
from .budget import Budget
from .options import Options
from .refusal import Refused, one_line, shown
from .source_files import is_folder, member, regular_file
from .tensor_files import SUFFIXES, tensors_in
from .trace import TraceWriter

_SINGLE = ("model.safetensors", "pytorch_model.bin")  # in the order in which transformers looks for them
_INDICES = tuple(f"{name}.index.json" for name in _SINGLE)
# Where training programs put the parameters beside what else they save.
_PARTS = ("model", "state_dict", "model_state_dict", "module")
_LATEST = "latest_checkpointed_iteration.txt"
_MOST_INDEX_BYTES = 1 << 28

Keys = tuple[str, ...]
Parameter = tuple[Keys, Callable[[], Any], str]  # nested keys, what loads it, and where it is


def import_checkpoint(options: Options, open_trace: Callable[[set[int]], TraceWriter]) -> None:
    """Raises Refused, also where a parameter is one that a trace cannot hold: two checkpoints that differ in it would
    look the same."""
    if len(options.sources) != 1:
        raise Refused("checkpoint: expected one SOURCE")
    (source,) = options.sources
    others: list[str] = []
    parameters = list(_parameters(source, options.budget, others))
    part = tuple(options.key.split(".")) if options.key else _part_of([keys for keys, _, _ in parameters], source)
    with open_trace({0}) as trace:
        for name in others:
            trace.leave_out(name, "entries that are no tensors")
        for keys, load, where in parameters:
            inner = _inside(keys, part)
            if inner is None:
                trace.leave_out(".".join(keys), "tensors of other parts")
                continue
            tensor_id = TensorId(0, NO_MICROBATCH, 0, Pass.FORWARD, Kind.PARAM, inner)
            if not trace.record(0, tensor_id, load(), f"{where}: {inner}"):
                what = next(reversed(trace.left_out))
                raise Refused(f"{one_line(f'{where}: {inner}')}: {what}, which a trace cannot hold")
        if trace.tensors == 0:
            raise Refused(f"{one_line(str(source))}: no parameter{f' below --key {options.key}' if part else ''}")
        trace.finish()


def _parameters(source: Path, budget: Budget, others: list[str]) -> Iterator[Parameter]:
    if not is_folder(source):
        if source.name.endswith(".json"):
            raise Refused(f"{one_line(str(source))}: an index; expected the folder that it lies in")
        yield from _of_file(source, budget, others)
        return
    if (source / _LATEST).exists():
        yield from _parameters(_latest(source), budget, others)
        return
    if (source / dcp.METADATA).exists():
        for stored in dcp.tensors_of(source, budget, others):
            yield stored.keys, stored.load, str(source)
        return
    for single, index in zip(_SINGLE, _INDICES, strict=True):
        if (source / index).exists():
            yield from _of_index(source, regular_file(source / index), budget, others)
            return
        if (source / single).exists():
            yield from _of_files([regular_file(source / single)], budget, others)
            return
    files = sorted(path for path in source.iterdir() if path.name.endswith(SUFFIXES))
    if not files:
        raise Refused(
            f"{one_line(str(source))}: no file of tensors; expected some, or an index ({' or '.join(_INDICES)}), or "
            f"DCP's {dcp.METADATA}"
        )
    yield from _of_files([regular_file(path) for path in files], budget, others)


def _latest(source: Path) -> Path:
    """The checkpoint that Megatron wrote last below its --save folder."""
    path = regular_file(source / _LATEST)
    with open(path, "rb") as file:
        word = file.read(64).decode("ascii", "replace").strip()
    if word != "release" and not word.isdecimal():
        raise Refused(f"{one_line(str(path))}: {shown(word)}; expected the number of an iteration")
    folder = source / (word if word == "release" else f"iter_{int(word):07}")
    if folder.is_symlink() or not folder.is_dir():
        raise Refused(f"{one_line(str(folder))}: no folder, and {_LATEST} names it; expected a checkpoint")
    return folder


def _of_files(paths: list[Path], budget: Budget, others: list[str]) -> Iterator[Parameter]:
    """Of files without an index: parts of one checkpoint, or where two have a key in common, things of their own, whose
    names begin with the file's."""
    found = [(path, list(_of_file(path, budget, others))) for path in paths]
    keys = [keys for _, parameters in found for keys, _, _ in parameters]
    is_one = len(set(keys)) == len(keys)
    for path, parameters in found:
        for inner, load, where in parameters:
            yield inner if is_one else (f"{_stem_of(path)}.{'.'.join(inner)}",), load, where


def _stem_of(path: Path) -> str:
    return path.name[: -len(next(suffix for suffix in SUFFIXES if path.name.endswith(suffix)))]


def _of_file(path: Path, budget: Budget, others: list[str]) -> Iterator[Parameter]:
    if not path.name.endswith(SUFFIXES):
        raise Refused(f"{one_line(str(path))}: expected a folder or one of {', '.join(SUFFIXES)}")
    for keys, tensor in tensors_in(path, budget, lambda keys, what: others.append(".".join(keys))):
        yield keys or (_stem_of(path),), lambda tensor=tensor: tensor, str(path)


def _of_index(folder: Path, index: Path, budget: Budget, others: list[str]) -> Iterator[Parameter]:
    """Of the files that the index lists. Refuses where they hold other tensors than it says."""
    if index.stat().st_size > _MOST_INDEX_BYTES:
        raise Refused(f"{one_line(str(index))}: larger than {_MOST_INDEX_BYTES} bytes; expected an index")
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        listed = dict(weight_map.items())
        if not all(isinstance(file, str) for file in listed.values()):
            raise ValueError("a file that is no name")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Refused(f"{one_line(str(index))}: expected JSON with a weight_map of names and files") from None
    whole = index.name.removesuffix(".index.json")
    if (folder / whole).exists() and whole not in listed.values():
        raise Refused(
            f"{one_line(str(index))}: does not list {whole}, which lies beside it, and a program loads the one or the "
            "other; expected one of them"
        )
    held: dict[str, str] = {}
    for file in dict.fromkeys(listed.values()):
        for keys, load, where in _of_file(member(folder, file, index), budget, others):
            name = ".".join(keys)
            if listed.get(name) != file:
                raise Refused(f"{one_line(where)}: holds '{one_line(name)}', of which {index.name} says otherwise")
            held[name] = where
            yield keys, load, where
    missing = next((name for name in listed if name not in held), None)
    if missing is not None:
        raise Refused(f"{one_line(str(index))}: '{one_line(missing)}' is not in the file that it names")


def _part_of(all_keys: list[Keys], source: Path) -> Keys:
    """Where the parameters are: () for the whole, if there are tensors at the top."""
    if not all_keys or any(len(keys) <= 1 for keys in all_keys):
        return ()
    parts = list(dict.fromkeys(keys[0] for keys in all_keys))
    found = next((part for part in _PARTS if part in parts), None)
    if found is None:
        listed = one_line(", ".join(parts[:5]))
        raise Refused(
            f"{one_line(str(source))}: the tensors are below {listed}; expected --key with one that holds them"
        )
    return (found,)


def _inside(keys: Keys, part: Keys) -> str | None:
    """The name within `part`; None for a tensor that is not in it. A key may hold dots itself."""
    name, prefix = ".".join(keys), "".join(f"{key}." for key in part)
    if not part and len(keys) > 1:
        return None
    return name[len(prefix) :] if name.startswith(prefix) and len(name) > len(prefix) else None
