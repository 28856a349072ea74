"""Tries ttrace on a device. Each row is said as it ends, and written to OUTPUT/rows.jsonl; figures likewise."""

import argparse
import contextlib
import fnmatch
import os
import platform
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from gpu import figures
from gpu.commands import ROOT, Commands
from gpu.rows import ROWS
from gpu.trial import Result, Trial
from sweeps import warm

FIGURES_SHARE = 0.4  # of the time, which rows leave to them


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/gpu", description=__doc__)
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cuda", help="[cuda]")
    add("--seconds", type=float, help="of all together; what has no time is said to have none [480; on a CPU 3600]")
    add("--row-seconds", type=float, help="of one row [100; on a CPU 300]")
    add("--jobs", type=int, help="rows at a time [on a CPU 1, else 5]")
    add("--only", metavar="GLOB", action="append", default=[], help="rows and figures of such names; may be repeated")
    add("--list", action="store_true", help="list rows and figures, run nothing")
    add("-o", "--output", type=Path, default=ROOT / "build/gpu", help="directory for what was found")
    options = parser.parse_args()
    is_cpu = options.device == "cpu"
    options.jobs = options.jobs or (1 if is_cpu else 5)
    options.seconds = options.seconds or (3600 if is_cpu else 480)
    options.row_seconds = options.row_seconds or (300 if is_cpu else 100)
    return options


def main() -> int:
    options = parse_options()
    wanted = options.only or ["*"]
    rows = [row for row in ROWS if any(fnmatch.fnmatch(row.name, glob) for glob in wanted)]
    measured = [name for name in figures.names(options.device) if any(fnmatch.fnmatch(name, glob) for glob in wanted)]
    if options.list:
        print("\n".join([*(row.name for row in rows), *measured]))
        return 0
    if not rows and not measured:
        sys.exit(f"gpu: error: nothing is called {' or '.join(options.only)}; --list")
    started = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    for name in ("rows.jsonl", "figures.jsonl", "log.txt"):
        (options.output / name).unlink(missing_ok=True)
    ttrace = Path(os.environ.setdefault("TTRACE_PROGRAM", str(ROOT / "build/bin/ttrace")))
    end = started + options.seconds
    with tempfile.TemporaryDirectory(prefix="ttrace-gpu-") as work:
        print(f"{facts_of(options.device)}; traces in {work}, {free_gib(work):.0f} GiB free", flush=True)
        end_of_rows = started + options.seconds * (1 - FIGURES_SHARE if measured else 1)
        commands = Commands(options.device, ttrace, options.output / "log.txt", end_of_rows)
        with warm.server() if options.device == "cpu" else contextlib.nullcontext():
            results = run_rows(rows, Trial(commands, Path(work), options.row_seconds), options)
        commands = Commands(options.device, ttrace, options.output / "log.txt", end)
        figures.measure(measured, commands, Path(work), options.output / "figures.jsonl")
    states = [result.state for result in results]
    counts = {state: states.count(state) for state in ("ok", "WRONG", "not here", "no time")}
    print(", ".join(f"{count} {state}" for state, count in counts.items()), f"in {time.monotonic() - started:.0f} s")
    return 1 if counts["WRONG"] else 2 if counts["no time"] else 0


def run_rows(rows: list, trial: Trial, options: argparse.Namespace) -> list[Result]:
    results = []
    with ThreadPoolExecutor(options.jobs) as pool, (options.output / "rows.jsonl").open("w") as kept:
        for future in as_completed([pool.submit(trial.run, row) for row in rows]):
            results.append(future.result())
            print(results[-1].line(), flush=True)
            print(results[-1].to_json(), file=kept, flush=True)
    return results


def facts_of(device: str) -> str:
    from importlib.metadata import version

    facts = [f"Python {platform.python_version()}", f"torch {version('torch')}"]
    if device == "cuda":
        import torch

        facts += [f"CUDA {torch.version.cuda}", torch.cuda.get_device_name()]
    return ", ".join([*facts, f"{os.cpu_count()} cores"])


def free_gib(directory: str) -> float:
    return shutil.disk_usage(directory).free / 2**30


if __name__ == "__main__":
    sys.exit(main())
