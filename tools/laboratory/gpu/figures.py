"""What recording costs: step time, memory of the device and bytes, by model and by what is recorded.

A recorded iteration ends with the next one's first call. So a run records iterations 1 and 2, and step 2 is what a
step costs that is recorded while the one before is finished; steps that are not recorded come before and after."""

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpu.commands import Commands, Ended, OutOfTime

HERE = Path(__file__).resolve().parent
_SECONDS = 120  # of a model and a kind of recording
_STEPS, _RECORDED, _COUNTED = 5, "1-2", 2
_WATCHED_STEPS = 16
# By what is recorded: the options of collect. `plain` runs without ttrace.
KINDS = {"plain": None, "whole": [], "sketch": ["--sketch"], "watch": None}


def names(device: str) -> list[str]:
    models = ["124m", "1b"] if device == "cuda" else ["tiny"]
    return ["figure-bandwidth", *(f"figure-{model}" for model in models)]


def measure(wanted: list[str], commands: Commands, work: Path, output: Path) -> None:
    """Prints and writes each figure as soon as it is there, one command at a time."""
    if not wanted:
        return
    with output.open("w") as kept:

        def keep(figure: dict) -> None:
            print("figure  ", "  ".join(f"{name} {_said(value)}" for name, value in figure.items()), flush=True)
            print(json.dumps(figure), file=kept, flush=True)

        for name in wanted:
            try:
                if name == "figure-bandwidth":
                    words = ["--device", commands.device, "--directory", str(work)]
                    words += ["--mib", "16"] if commands.device == "cpu" else []
                    ended = commands.run([sys.executable, str(HERE / "bandwidth.py"), *words], _until())
                    keep({"figure": "bandwidth", **(_lines(ended)[-1] if ended.code == 0 else _problem(ended))})
                else:
                    _measure_model(name.removeprefix("figure-"), commands, work, keep)
            except OutOfTime as error:
                keep({"figure": name, "problem": str(error)})


def _measure_model(model: str, commands: Commands, work: Path, keep: Callable[[dict], None]) -> None:
    traces, plain_seconds = work / model, None
    traces.mkdir()
    for kind, options in KINDS.items():
        figure = {"figure": model, "recorded": kind}
        try:
            ended = _run(model, kind, options, commands, traces / kind)
        except OutOfTime as error:  # what it had printed by then counts
            if error.ended is None:
                raise
            ended, figure["problem"] = error.ended, str(error)
        lines = _lines(ended)
        steps = [line for line in lines if "step" in line]
        if (ended.code != 0 and "problem" not in figure) or len(steps) <= _COUNTED:
            keep(figure | _problem(ended))
            continue
        # Watching is spread over all steps; what the first one does once is no part of it.
        counted = steps[1:] if kind in ("plain", "watch") else [steps[_COUNTED]]
        average = statistics.median if kind == "plain" else statistics.mean
        seconds = average(step["seconds"] for step in counted)
        plain_seconds = seconds if kind == "plain" else plain_seconds
        figure |= {"step_ms": 1e3 * seconds, "peak_gib": max(step["peak_bytes"] for step in counted) / 2**30}
        if kind != "plain" and plain_seconds:
            figure["times_plain"] = seconds / plain_seconds
        if kind in ("whole", "sketch"):
            size = sum(path.stat().st_size for path in (traces / kind).rglob("rank-*.h5")) / 2
            figure |= {"gb_a_step": size / 1e9, "gb_per_s": size / 1e9 / seconds}
        if "samples" in lines[-1]:
            figure["parameters"] = lines[-1]["parameters"]
            figure["where_percent"] = _shares(lines[-1]["samples"])
        keep(figure)
    if (traces / "whole").exists() and (traces / "sketch").exists():
        # Without tolerances: by fingerprints, bit for bit, where the program gives the same bits in each run.
        sides = ["--reference", traces / "whole", "--candidate", traces / "sketch"]
        ended = commands.ttrace("check", *sides, "--json", "-", until=_until())
        report = json.loads(ended.stdout) if ended.stdout.startswith("{") else {"verdict": ended.last_words()}
        keep({"figure": model, "sketch_against_whole": report["verdict"], "counts": report.get("counts")})
    shutil.rmtree(traces)


def _run(model: str, kind: str, options: list[str] | None, commands: Commands, trace: Path) -> Ended:
    steps = _WATCHED_STEPS if kind == "watch" else _STEPS
    command = [sys.executable, str(HERE / "steps.py"), "--model", model, "--device", commands.device]
    command += ["--steps", str(steps)]
    if kind == "plain":
        return commands.run(command, _until())
    if kind == "watch":
        return commands.ttrace("watch", "-o", trace, "--every", 5, "--", *command, until=_until())
    return commands.ttrace("collect", "-o", trace, "--iterations", _RECORDED, *options, "--", *command, until=_until())


def _until() -> float:
    return time.monotonic() + _SECONDS


def _lines(ended: Ended) -> list[dict]:
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def _problem(ended: Ended) -> dict:
    return {"problem": f"ends with {ended.code}: {ended.last_words()}"}


def _shares(samples: dict[str, int]) -> dict[str, float]:
    """Of what was sampled, in percent."""
    total = sum(samples.values())
    return {place: round(100 * count / total, 1) for place, count in samples.items()}


def _said(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
