"""Times `ttrace check` on two checkpoints of one model, safetensors against DCP, beside a script that reads both with
PyTorch and compares them with NumPy: tensor by tensor, equal or not, and how far. All figures are GB/s of input, both
sides counted, from a warm page cache, the median of several turns."""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HELP = "speed of ttrace check on checkpoints of two formats"

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
TURNS = 3
SIDES = ("reference.safetensors", "candidate")


def add_options(parser):
    parser.add_argument("--gib", type=float, default=4, help="size of each checkpoint (default: 4)")
    parser.add_argument("--dir", type=pathlib.Path, help="where to make them (default: the temporary directory)")
    parser.add_argument(
        "--python", default=str(HERE.parents[2] / ".venv" / "bin" / "python"), help="with numpy and torch"
    )


def run(options):
    script = [options.python, HERE / "compare_checkpoints.py"]
    with tempfile.TemporaryDirectory(prefix="ttrace-bench-", dir=options.dir) as scratch:
        subprocess.run([*script, "make", scratch, str(int(options.gib * GIB))], check=True)
        sides = [pathlib.Path(scratch) / side for side in SIDES]
        check = [options.build / "bin" / "ttrace", "check", *sides, "--python", options.python]
        size, ttrace, numpy = sum(map(bytes_of, sides)), [], []
        for turn in range(TURNS):
            print(f"{turn + 1} of {TURNS}", file=sys.stderr)
            ttrace.append(size / seconds_of(check) / 1e9)
            numpy.append(size / seconds_of([*script, "compare", *sides]) / 1e9)
    figures = {"bytes": size, "ttrace_gbps": statistics.median(ttrace), "numpy_gbps": statistics.median(numpy)}
    print(f"{size / 1e9:.3g} GB of two checkpoints, GB/s: ttrace check {figures['ttrace_gbps']:.3g}, "
          f"a NumPy script {figures['numpy_gbps']:.3g}")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def seconds_of(command):
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # the checkpoints are equal: exit code 0
    return time.perf_counter() - started


def bytes_of(side):
    return side.stat().st_size if side.is_file() else sum(file.stat().st_size for file in side.iterdir())
