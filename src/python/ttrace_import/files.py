"""Files whose paths, and keys within them, say what their tensors are."""

from collections.abc import Callable
from pathlib import Path

from ttrace_torch.library import Pass, TensorId, microbatch_of

from .options import Options
from .pattern import Captured, Pattern
from .refusal import Refused, one_line
from .source_files import files_below, is_folder
from .tensor_files import SUFFIXES, tensors_in
from .trace import TraceWriter

_Match = tuple[str, Path, dict[str, str]]  # relative path, path, and what was captured of it


def import_files(options: Options, open_trace: Callable[[set[int]], TraceWriter]) -> None:
    """Raises Refused."""
    pattern = Pattern(options.pattern) if options.pattern else None
    if options.kind is None and (pattern is None or not pattern.captures_kind):
        raise Refused("nothing says of which kind the tensors are; expected --kind, or {kind} in --pattern")
    found, others = _find(options, pattern)
    with open_trace({int(of_path.get("rank", 0)) for _, _, of_path in found}) as trace:
        for name in others:
            trace.leave_out(name, "files that the pattern does not match")
        for relative, path, of_path in found:
            for keys, tensor in tensors_in(
                path, trace.budget, lambda keys, what: trace.leave_out(".".join(keys), what)
            ):
                key = ".".join(keys)
                if pattern is None:
                    captured = Captured(name=key or _name_of(relative))
                else:
                    captured = pattern.captured(of_path, key)
                if captured is None:
                    trace.leave_out(f"{relative}::{key}", "keys that the pattern does not match")
                    continue
                where = f"{path}{'::' + key if key else ''}"
                trace.record(captured.rank or 0, _id_of(captured, options, where), tensor, where)
        if trace.tensors == 0:
            raise Refused(_nothing(options, [f"{relative}::KEY" for relative, _, _ in found]))
        trace.finish()


def _find(options: Options, pattern: Pattern | None) -> tuple[list[_Match], list[str]]:
    """The files that match, and the relative paths of the others."""
    found: list[_Match] = []
    others: list[str] = []
    for source in options.sources:
        listed = files_below(source, SUFFIXES) if is_folder(source) else [(source.name, source)]
        for relative, path in listed:
            if not relative.endswith(SUFFIXES):
                raise Refused(f"{one_line(str(path))}: expected one of {', '.join(SUFFIXES)}")
            of_path = {} if pattern is None else pattern.match_path(relative)
            if of_path is None:
                others.append(relative)
            else:
                found.append((relative, path, of_path))
    if not found:
        raise Refused(_nothing(options, others))
    return found, others


def _id_of(captured: Captured, options: Options, where: str) -> TensorId:
    kind = captured.kind if captured.kind is not None else options.kind
    if captured.name is None:
        raise Refused(f"{one_line(where)}: nothing says the tensor's name; expected {{name}} in --pattern")
    microbatch = microbatch_of(kind, captured.microbatch)
    return TensorId(captured.iteration or 0, microbatch, 0, Pass.FORWARD, kind, captured.name)


def _name_of(relative: str) -> str:
    return relative[: -len(next(suffix for suffix in SUFFIXES if relative.endswith(suffix)))].replace("/", ".")


def _nothing(options: Options, others: list[str]) -> str:
    """Why no tensor was found."""
    sources = one_line(", ".join(map(str, options.sources)))
    if options.pattern and others:
        return f"{sources}: nothing matches --pattern '{one_line(options.pattern)}'; there is {one_line(others[0])}"
    return f"{sources}: no tensor; expected files with names in {', '.join(SUFFIXES)}"
