"""Seconds of a processor, and memory, that commands take for some number of tensors of one rank and for eight times as
many (`--tensors N ...`: for others): they grow with the number of tensors, and not with its square. Exit code 1 where
one does."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HELP = "how commands grow with the number of tensors"

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FEW, MANY = 3_000, 24_000
MOST = 25 / 8  # times what the count grows by: n log n, and what caches hold no longer; its square is 8
SMALL = 0.03, 64  # s, MiB; what a command takes that reads nothing
SIDES = ["--reference", "reference", "--candidate"]
DIFFERENT = ["check", *SIDES, "different", "-t", "default"]
REPORTS = {"JSON": "--json", "JUnit": "--junit", "CSV": "--csv", "SARIF": "--sarif", "HTML": "--html"}
COMMANDS = {
    "export": ["export", "reference", "-o", "t.safetensors"],
    "export as npz": ["export", "reference", "-o", "t.npz"],
    "inspect": ["inspect", "reference"],
    "inspect as JSON": ["inspect", "reference", "--json"],
    "check": ["check", *SIDES, "same"],
    "check by the default": ["check", *SIDES, "same", "-t", "default"],
    "check of what differs": DIFFERENT,
    "all findings": [*DIFFERENT, "--all"],
    **{f"{name} of what differs": [*DIFFERENT, option, "report"] for name, option in REPORTS.items()},
}


def add_options(parser):
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"), help="with numpy [%(default)s]")
    parser.add_argument("--repeat", type=int, default=2, metavar="N", help="the least of so many counts [%(default)s]")
    parser.add_argument("--tensors", type=int, nargs="+", default=[FEW, MANY], metavar="N", help="[%(default)s]")


def run(options):
    program = (options.build / "bin" / "ttrace").resolve()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        places = {count: record(pathlib.Path(name, str(count)), count, options.python) for count in options.tensors}
        for command in COMMANDS:
            rows.append(row_of(program, places, command, options.repeat))
            print(describe(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if any(row["times"] >= MOST for row in rows) else 0


def record(directory, count, python):
    """Makes the directory, with the traces that COMMANDS name."""
    directory.mkdir()
    subprocess.run([python, HERE / "many_tensors.py", directory, str(count)], check=True)
    return directory


def row_of(program, places, name, repeat):
    """What the command takes of each count, and the largest growth from one to the next, in units of the count's."""
    words, used = [program, *COMMANDS[name]], []
    for count, directory in places.items():
        counts = [use_of(words, directory) for _ in range(repeat)]
        used.append({"tensors": count, "seconds": min(s for s, _ in counts), "mib": min(m for _, m in counts)})
    times = [
        max(after[key], small) / max(before[key], small) * before["tensors"] / after["tensors"]
        for before, after in itertools.pairwise(used)
        for key, small in zip(("seconds", "mib"), SMALL, strict=True)
    ]
    return {"command": name, "used": used, "times": max(times, default=0)}


def describe(row):
    used = (f"{one['seconds']:7.2f} s {one['mib']:7.0f} MiB of {one['tensors']:,} tensors" for one in row["used"])
    return f"{row['command']:22} {', '.join(used)}: {row['times']:4.2f} times the count"


def use_of(command, directory):
    """Seconds of a processor, and MiB at its peak."""
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        sys.exit(f"tools/bench growth: {' '.join(map(str, command))} ended with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
