"""Step time of tinygpt with and without collection, in turn (A B A B ...), and their ratio pair by pair."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HELP = "step time of tinygpt with and without collection"

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = ROOT / "tools" / "tinygpt" / "train.py"


def add_options(parser):
    parser.add_argument("--pairs", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--steps", type=int, default=6, help="training steps a run, the first not counted (default: 6)")
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"), help="with torch")
    parser.add_argument("train", nargs="*", help="arguments for tinygpt, after --")


def run(options):
    ttrace = str(options.build / "bin" / "ttrace")
    train = [options.python, str(TRAIN), "--steps", str(options.steps), "--print-times", *options.train]
    without, collected = [], []
    for pair in range(options.pairs):
        print(f"\rbench collect: pair {pair + 1} of {options.pairs}", end="", file=sys.stderr)
        without.append(step_seconds(train))
        with tempfile.TemporaryDirectory() as directory:
            every_step = ["--iterations", f"0-{options.steps - 1}"]
            collected.append(step_seconds([ttrace, "collect", "-o", f"{directory}/trace", *every_step, "--", *train]))
    print(file=sys.stderr)
    ratios = [b / a for a, b in zip(without, collected, strict=True)]
    figures = {
        "plain_step_seconds": statistics.median(without),
        "collected_step_seconds": statistics.median(collected),
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
    }
    for name, value in figures.items():
        print(f"{name:24} {value:.4f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def step_seconds(command):
    """Median time of the steps after the first, as the training program itself prints it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    seconds = [float(line.split()[-1]) for line in output.splitlines() if " seconds " in line]
    return statistics.median(seconds[1:])
