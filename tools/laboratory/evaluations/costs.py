"""What recording costs: bytes of an iteration, by what of it is recorded, the time of a step beside a plain one, and
the launches of a first verdict.

`tools/laboratory/costs [--only MODEL ...]` writes COSTS.md beside this file; with --only, of those models alone, it
prints what it has measured. Models are trained by one process; the largest wants 4 GB of memory and of disk."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from freshness import commit, sentence

from . import page
from .markdown import table

COMMAND = "tools/laboratory/costs"
ROOT = Path(__file__).resolve().parents[3]
TTRACE = os.environ.get("TTRACE_PROGRAM", "ttrace")


class Model(NamedTuple):
    name: str
    environment: str
    program: str
    arguments: list[str]


def _llama(layers: int, hidden: int, heads: int, ffn: int, vocab: int) -> list[str]:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv-heads": heads, "ffn": ffn, "vocab": vocab}
    sizes |= {"seq": 128, "micro-batches": 1, "micro-batch-size": 1}
    return [word for name, size in sizes.items() for word in (f"--{name}", str(size))]


MODELS = (
    Model("tinygpt", ".venv", "tools/tinygpt/train.py", []),
    Model(
        "Megatron-core", ".venv-megatron", "tools/frameworks/megatron/train.py", ["--layers", "8", "--hidden", "512"]
    ),
    Model("Llama of 162 M", ".venv", "tools/torchgpt/train.py", _llama(12, 768, 12, 2048, 50257)),
)
TIMED = {"tinygpt": "tinygpt", "megatron": "Megatron-core"}  # by the name that `tools/bench collect` has


class Bytes(NamedTuple):
    model: str
    parameters: int
    tensors: int
    plain: int  # bytes of the model's parameters
    whole: int
    light: int  # of an iteration behind the whole one
    sketched: int


def measure(model: Model) -> Bytes:
    whole, trace = record(model)
    both, _ = record(model, "--then", "1")
    sketched, _ = record(model, "--sketch")
    return Bytes(model.name, *trace, whole, both - whole, sketched)


def record(model: Model, *options: str) -> tuple[int, tuple[int, int, int]]:
    """The bytes of the trace; parameters, tensors, and bytes of parameters of the model."""
    steps = 2 if "--then" in options else 1
    program = [str(ROOT / model.environment / "bin/python"), str(ROOT / model.program), *model.arguments]
    with tempfile.TemporaryDirectory(prefix="ttrace-costs-", dir=ROOT / "build") as directory:
        command = [TTRACE, "collect", "-q", "-o", f"{directory}/trace", "--iterations", "0", *options, "--", *program]
        subprocess.run([*command, "--steps", str(steps)], check=True, stdout=subprocess.DEVNULL)
        shown = subprocess.run([TTRACE, "inspect", "--json", f"{directory}/trace"], check=True, capture_output=True)
        (rank,) = json.loads(shown.stdout)["ranks"]
        parameters = [tensor for tensor in rank["tensors"] if tensor["kind"] == "param"]
        elements = sum(math.prod(tensor["shape"]) for tensor in parameters)
        size = sum(file.stat().st_size for file in Path(directory).rglob("rank-*.h5"))
        return size, (elements, len(rank["tensors"]), sum(tensor["bytes"] for tensor in parameters))


def time_of(program: str) -> dict[str, float]:
    return _bench("collect", "--turns", "3", "--program", program)


def _bench(*words: str) -> Any:
    with tempfile.NamedTemporaryFile(suffix=".json") as figures:
        bench = [str(ROOT / "tools/bench"), *words, "--json", figures.name]
        subprocess.run(bench, check=True, stdout=subprocess.DEVNULL)
        return json.load(open(figures.name))


def render(rows: list[Bytes], times: dict[str, dict[str, float]], verdicts: list[dict[str, Any]]) -> list[str]:
    lines = ["## Bytes of an iteration", ""]
    lines += [
        "One process, one optimizer step of AdamW. *Whole*: `ttrace collect`, each iteration of `--split`. *Light*: "
        "one of `--then`, behind a whole one. *Sketches*: `--sketch`, of tensors of 65,536 elements or more. "
        "`ttrace watch` records whole iterations, keeps three of them at most, and removes those that are right. In "
        "parentheses: times the bytes of the parameters.",
        "",
    ]
    cells = [
        [row.model, f"{row.parameters:,}", f"{row.tensors:,}", *(_of(row, size) for size in row[-3:])] for row in rows
    ]
    lines += table(["model", "parameters", "tensors", "whole", "light", "sketches"], cells)
    lines += ["", "## Time of a step", ""]
    lines += [
        "By `tools/bench collect`, plain, recorded and waiting runs in turn: a recorded step's time beside a plain "
        "one's, on the clock, and of a processor in the thread that trains; and that of a step which is not recorded, "
        "under `ttrace collect`. In brackets the least and the largest of the turns.",
        "",
    ]
    ratios = ("recorded_ratio_seconds", "recorded_ratio_cpu", "waiting_ratio_cpu")
    figures = [[TIMED[name], *(_ratio(time, what) for what in ratios)] for name, time in times.items()]
    lines += table(["model", "recorded, clock", "recorded, processor", "not recorded, processor"], figures)
    return lines + (["", *_launches(verdicts)] if verdicts else [])


def _launches(verdicts: list[dict[str, Any]]) -> list[str]:
    cells: dict[str, list[str]] = {}
    for row in verdicts:
        of = cells.setdefault(row["program"], [row["program"]])
        of += [f"{row['launches']}", f"{row['seconds']:.0f} s", row["verdict"]]
    start = verdicts[0]["start"]
    return [
        "## Launches of a first verdict",
        "",
        "By `tools/bench launches`: `ttrace run` of a reference on one process and a candidate on two. Each waits "
        f"{start:g} s at its start. With samples from a DataLoader, the reference's rerun and perturbed runs are "
        "replays in its own launch; from a generator, each is a launch.",
        "",
        *table(
            ["program", "loader: launches", "time", "verdict", "generator: launches", "time", "verdict"],
            list(cells.values()),
        ),
    ]


def _of(row: Bytes, size: int) -> str:
    return f"{size / 2**20:,.1f} MiB ({size / row.plain:.2f})"


def _ratio(time: dict[str, float], what: str) -> str:
    return f"{time[what]:.2f} [{time[what + '_min']:.2f}, {time[what + '_max']:.2f}]"


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="MODEL", choices=[model.name for model in MODELS], default=[])
    options = parser.parse_args()
    started, measured = time.monotonic(), commit()
    rows = []
    for model in MODELS:
        if not options.only or model.name in options.only:
            print(f"costs: {model.name}", file=sys.stderr, flush=True)
            rows.append(measure(model))
    times = {name: time_of(name) for name, title in TIMED.items() if not options.only or title in options.only}
    verdicts = [] if options.only else _bench("launches")
    made = sentence(COMMAND, time.monotonic() - started, [measured], page.machine())
    text = "\n".join(["# What recording costs", "", made, "", *render(rows, times, verdicts)]) + "\n"
    if options.only:
        print(text, end="")
    else:
        (page.HERE / "COSTS.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
