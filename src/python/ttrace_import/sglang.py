"""Dumps of SGLang's dumper (sglang.srt.debug_utils.dumper): a .pt file a tensor, {"value": tensor, "meta": {...}},
called `step=0___rank=0___dump_index=1___name=hidden_states___layer_id=3.pt`. What the file's name says, meta says as
well; meta counts."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ttrace_torch.library import Kind, Pass, TensorId, microbatch_of

from .options import Options
from .refusal import Refused, first_line, one_line, shown
from .source_files import files_below, is_folder
from .tensor_files import leaves, load_pickle
from .trace import TraceWriter

_MODULES = (
    "non_intrusive__"  # before what the dumper's own hooks record: `layers.0.mlp.inputs.0`, `layers.0.mlp.output`
)
_MOST = (1 << 31) - 1


def import_sglang(options: Options, open_trace: Callable[[set[int]], TraceWriter]) -> None:
    """Raises Refused."""
    found = []
    for source in options.sources:
        if not is_folder(source):
            raise Refused(f"{one_line(str(source))}: expected a folder of SGLang's dumper")
        found += [(path, _tags(relative)) for relative, path in files_below(source, (".pt",))]
    dumps = sorted((tags, path) for path, tags in found if tags is not None)
    if not dumps:
        raise Refused(
            f"{one_line(str(options.sources[0]))}: no file of SGLang's dumper; expected step=0___rank=0___....pt"
        )
    with open_trace({rank for (rank, _), _ in dumps}) as trace:
        for path in (path for path, tags in found if tags is None):
            trace.leave_out(path.name, "files of others")
        calls: Counter[tuple] = Counter()
        for (rank, _), path in dumps:
            _import_dump(trace, rank, path, calls)
        if trace.tensors == 0:
            raise Refused(f"{one_line(str(options.sources[0]))}: no tensor")
        trace.finish()


def _tags(relative: str) -> tuple[int, int] | None:
    """Rank and number of the dump; None for a file of others."""
    name = relative.rpartition("/")[2].removesuffix(".pt")
    tags = dict(item.split("=", 1) for item in name.split("___") if "=" in item)
    numbers = [tags.get(key, "") for key in ("rank", "dump_index")]
    if not all(number.isdecimal() and len(number) < 10 for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


def _import_dump(trace: TraceWriter, rank: int, path: Path, calls: Counter[tuple]) -> None:
    where = one_line(str(path))
    trace.budget.at(path)
    value, meta = _value_and_meta(path)
    said = meta.get("rank")
    if type(said) is not int or said != rank:
        raise Refused(f"{where}: says rank {shown(said)} within; expected that of its name")
    step, name = meta.get("step", 0), meta.get("name")
    if not (type(step) is int and 0 <= step <= _MOST and isinstance(name, str) and name):
        raise Refused(f"{where}: expected a meta with a step and a name")
    kind, name = _kind_and_name(name)
    layer = meta.get("layer_id")
    if type(layer) is int and not name.startswith("layers.") and ".layers." not in name:
        name = f"layers.{layer}.{name}"
    pass_ = Pass.RECOMPUTE if str(meta.get("recompute_status")) == "recompute" else Pass.FORWARD
    for keys, tensor in leaves(
        value, path, trace.budget, lambda keys, what: trace.leave_out(path.name, f"values that are {what}")
    ):
        member = f"{name}:{'.'.join(keys)}" if keys else name
        call = (rank, step, pass_, kind, member)
        number, calls[call] = calls[call], calls[call] + 1
        numbered = f"{member}#{number}" if number else member
        trace.record(rank, TensorId(step, microbatch_of(kind, None), 0, pass_, kind, numbered), tensor, str(path))


def _value_and_meta(path: Path) -> tuple[Any, dict]:
    where = one_line(str(path))
    try:
        content = load_pickle(path)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{where}: {first_line(error)}; expected a whole .pt file") from None
    if not isinstance(content, dict) or not isinstance(content.get("meta"), dict) or "value" not in content:
        raise Refused(f"{where}: expected value and meta, as SGLang's dumper writes")
    return content["value"], content["meta"]


def _kind_and_name(name: str) -> tuple[Kind, str]:
    """`grad__` stands before what is a gradient, `param__` before a parameter."""
    rest = name.removeprefix("grad__")
    is_gradient = rest != name
    if rest.startswith("param__"):
        return Kind.MAIN_GRAD if is_gradient else Kind.PARAM, rest.removeprefix("param__")
    if not rest.startswith(_MODULES):
        return Kind.GRAD_OUTPUT if is_gradient else Kind.OUTPUT, rest
    path = rest.removeprefix(_MODULES)
    head, separator, tail = path.rpartition("inputs.")
    if separator and (not head or head.endswith(".")):
        kind, module, member = Kind.INPUT, head.rstrip("."), tail
    else:
        module, separator, member = path.rpartition("output")
        kind, module, member = Kind.OUTPUT, (module if separator else path).rstrip("."), member.lstrip(".")
    if is_gradient:
        kind = Kind.GRAD_INPUT if kind == Kind.INPUT else Kind.GRAD_OUTPUT
    member = "" if kind in (Kind.INPUT, Kind.GRAD_INPUT) and member == "0" else member
    return kind, f"{module or '(model)'}{':' + member if member else ''}"
