"""`python -m ttrace_import`, as `ttrace import` runs it."""

import argparse
import signal
import sys
from pathlib import Path

from ttrace_torch.library import Kind

from .budget import Budget
from .options import Options
from .refusal import Refused, one_line, require
from .trace import TraceWriter

_FORMATS = {
    "files": "files",
    "checkpoint": "checkpoint",
    "msprobe": "msprobe",
    "sglang": "sglang",
    "transformer-engine": "transformer_engine",
    "torchtitan": "torchtitan",
}  # and the module


class Stopped(BaseException):
    """SIGTERM: what is written is removed on the way out."""


def _stop(number: int, frame: object) -> None:
    raise Stopped


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    if words is None:  # a process of its own
        options.budget.hold_process()
    try:
        with options.budget.held():
            written = _import(options)
    except Refused as error:
        print(f"ttrace: error: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"ttrace: error: {one_line(str(options.output))}: no memory is left", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # OpenBLAS raises SIGINT as well, where it can make no thread
        print(f"ttrace: error: {one_line(str(options.output))}: interrupted; nothing is left", file=sys.stderr)
        return 2
    except Stopped:
        print(f"ttrace: error: {one_line(str(options.output))}: stopped by a signal; nothing is left", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"ttrace: error: {one_line(str(error))}; expected readable files and a place to write", file=sys.stderr)
        return 2
    except Exception as error:  # one line, whatever a file holds
        what = one_line(f"{type(error).__name__}: {error}")[:200]
        where = one_line(str(options.output))
        print(f"ttrace: error: {where}: unexpected: {what}; please report this", file=sys.stderr)
        return 2
    ranks = f", {written.ranks} ranks" if written.ranks > 1 else ""
    tensors = "1 tensor" if written.tensors == 1 else f"{written.tensors} tensors"
    print(f"{one_line(str(options.output))}: {tensors}, {written.bytes} bytes{ranks}")
    for what in written.describe_left_out():
        print(f"left out: {what}")
    return 0


def _options(words: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m ttrace_import", allow_abbrev=False)
    parser.add_argument("format", choices=tuple(_FORMATS))
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--pattern", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--axes", default="")
    parser.add_argument("--partial", action="store_true")
    parser.add_argument("--places", type=Path)
    given = vars(parser.parse_args(words))
    given["kind"] = Kind[given["kind"].upper()] if given["kind"] else None
    return Options(**given | {"sources": tuple(given["sources"]), "budget": Budget(given["sources"])})


def _import(options: Options) -> TraceWriter:
    _refuse_options_of_others(options)
    module = _FORMATS[options.format]
    written: list[TraceWriter] = []

    def open_trace(ranks: set[int]) -> TraceWriter:
        written.append(TraceWriter(options, ranks))
        return written[0]

    getattr(require(f"ttrace_import.{module}"), f"import_{module}")(options, open_trace)
    return written[0]


def _refuse_options_of_others(options: Options) -> None:
    """An option that does nothing would be a mistake that nobody sees."""
    uses = {"--pattern": "files", "--kind": "files", "--key": "checkpoint"}
    given = {"--pattern": options.pattern, "--kind": options.kind, "--key": options.key}
    for name, value in given.items():
        if value and options.format != uses[name]:
            raise Refused(f"{name}: is an option of the format {uses[name]}; expected none for {options.format}")
    if options.axes and options.format == "checkpoint":
        raise Refused("--axes: a checkpoint is one rank's; expected none")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
