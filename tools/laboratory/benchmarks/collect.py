"""Step time of a training program with and without collection, in turn (A B C A B C ...), and the ratios turn by turn:
of steps that are recorded, and of those that are not yet. Beside the time on the clock stands what the thread that
trains has used of a processor, which other work on the machine changes less."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HELP = "step time of tinygpt or a Megatron-core model with and without collection"

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Python, program, and its arguments unless others are given.
PROGRAMS = {
    "tinygpt": (".venv", "tools/tinygpt/train.py", []),
    "megatron": (
        ".venv-megatron",
        "tools/frameworks/megatron/train.py",
        ["--layers", "8", "--hidden", "512", "--sequence", "128"],
    ),
}


def add_options(parser):
    parser.add_argument("--program", choices=PROGRAMS, default="tinygpt", help="what is trained (default: tinygpt)")
    parser.add_argument("--turns", type=int, default=5, help="runs of each kind (default: 5)")
    parser.add_argument("--steps", type=int, default=6, help="training steps a run, the first not counted (default: 6)")
    parser.add_argument("--python", help="with torch; left out: that of the program's environment")
    parser.add_argument("--ttrace", type=pathlib.Path, help="another build's program, to compare with")
    parser.add_argument("train", nargs="*", help="arguments for the program, after --")


def run(options):
    environment, program, arguments = PROGRAMS[options.program]
    python = options.python or str(ROOT / environment / "bin" / "python")
    train = [python, str(ROOT / program), "--steps", str(options.steps), "--print-times"]
    train += options.train or arguments
    ttrace = str(options.ttrace or options.build / "bin" / "ttrace")
    # Without iterations nothing is collected; in the last kind of run one step is recorded, after those that count.
    kinds = {"plain": None, "recorded": f"0-{options.steps - 1}", "waiting": str(options.steps)}
    seconds = {name: [] for name in kinds}
    recorded_bytes = 0
    for turn in range(options.turns):
        for name, iterations in kinds.items():
            print(f"\rbench collect: turn {turn + 1} of {options.turns}, {name:8}", end="", file=sys.stderr)
            with tempfile.TemporaryDirectory() as directory:
                collect = [ttrace, "collect", "-o", f"{directory}/trace", "--iterations", iterations or "", "--"]
                # One step more than is counted, which the last kind records.
                more = [*train, "--steps", str(options.steps + 1)] if name == "waiting" else train
                seconds[name].append(step_seconds(more if iterations is None else [*collect, *more], options.steps))
                if name == "recorded":
                    sizes = [path.stat().st_size for path in pathlib.Path(directory).rglob("rank-*.h5")]
                    recorded_bytes = sum(sizes) / options.steps
    print(file=sys.stderr)
    figures = figures_of(seconds) | {"bytes_a_step": recorded_bytes}
    for name, value in figures.items():
        print(f"{name:28} {value:.4f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def figures_of(seconds):
    figures = {}
    for clock in ("seconds", "cpu"):
        for name, runs in seconds.items():
            figures[f"{name}_step_{clock}"] = statistics.median(run[clock] for run in runs)
    for clock in ("seconds", "cpu"):
        for name in ("recorded", "waiting"):
            pairs = zip(seconds["plain"], seconds[name], strict=True)
            ratios = [other[clock] / plain[clock] for plain, other in pairs]
            figures[f"{name}_ratio_{clock}"] = statistics.median(ratios)
            figures[f"{name}_ratio_{clock}_min"] = min(ratios)
            figures[f"{name}_ratio_{clock}_max"] = max(ratios)
    return figures


def step_seconds(command, steps):
    """Medians of the first `steps` steps but the very first, as the program itself prints them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    words = [line.split() for line in output.splitlines() if line.startswith("step ") and " seconds " in line]
    return {
        clock: statistics.median(float(line[line.index(clock) + 1]) for line in words[1:steps])
        for clock in ("seconds", "cpu")
    }
