"""Seconds of a processor that commands take for 3,000 tensors and for eight times as many: they grow with the number of
tensors, and not with its square. Exit code 1 where one does."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HELP = "how commands grow with the number of tensors"

ROOT = pathlib.Path(__file__).resolve().parents[3]
FEW, MANY = 3_000, 24_000
MOST = 25  # times as long: n log n, and what caches hold no longer; its square is 64 times
SMALL = 0.03  # s; what a command takes that reads nothing
REPORTS = ["--json", "r.json", "--junit", "r.xml", "--csv", "r.csv", "--sarif", "r.sarif", "--html", "r.html"]
SIDES = ["--reference", "reference", "--candidate"]
COMMANDS = {
    "export": ["export", "reference", "-o", "t.safetensors"],
    "export as npz": ["export", "reference", "-o", "t.npz"],
    "check": ["check", *SIDES, "same"],
    "check by the default": ["check", *SIDES, "same", "-t", "default"],
    "reports of what differs": ["check", *SIDES, "different", "-t", "default", "--all", *REPORTS],
    "inspect": ["inspect", "reference"],
}


RECORD = """
import numpy, pathlib, sys
from traces import Tensor, record_run
count, values = int(sys.argv[1]), numpy.arange(1, 5, dtype="float32")
for name in ("reference", "same", "different"):
    factors = [3 if name == "different" and i % 2 else 1 for i in range(count)]
    tensors = [Tensor(f"layers.{i}.mlp", values * factor) for i, factor in enumerate(factors)]
    record_run(pathlib.Path(name), [tensors], run_id=name)
"""


def add_options(parser):
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"), help="with numpy and torch")
    parser.add_argument("--repeat", type=int, default=2, metavar="N", help="the least of so many counts [%(default)s]")


def run(options):
    program = (options.build / "bin" / "ttrace").resolve()
    with tempfile.TemporaryDirectory() as name:
        places = {count: record(pathlib.Path(name, str(count)), count, options, program) for count in (FEW, MANY)}
        rows = [row_of(program, places, command, options.repeat) for command in COMMANDS]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if any(row["times"] >= MOST for row in rows) else 0


def record(directory, count, options, program):
    """Makes the directory, with the traces that COMMANDS name."""
    directory.mkdir()
    environment = os.environ | {"TTRACE_PROGRAM": str(program), "PYTHONPATH": str(ROOT / "tests" / "cli")}
    subprocess.run([options.python, "-c", RECORD, str(count)], cwd=directory, env=environment, check=True)
    return directory


def row_of(program, places, name, repeat):
    few, many = (
        min(seconds_of([program, *COMMANDS[name]], places[count]) for _ in range(repeat)) for count in (FEW, MANY)
    )
    times = many / max(few, SMALL)
    print(f"{name:24} {few:6.2f} s of {FEW:,} tensors, {many:6.2f} s of {MANY:,}: {times:5.1f} times", flush=True)
    return {"command": name, "few": few, "many": many, "times": times}


def seconds_of(command, directory):
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode > 1:
        sys.exit(f"tools/bench growth: {' '.join(map(str, command))} ended with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime
