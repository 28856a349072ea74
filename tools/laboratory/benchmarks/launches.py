"""Launches and seconds of a first verdict, from programs whose samples come from a DataLoader, which `ttrace run`
launches twice, and from the same programs with the same samples from a generator, which it launches for every run. Each
waits at its start as one does that loads a checkpoint."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HELP = "launches and seconds of a first verdict"

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAMS = {  # the environment, the program, and the candidate's axes
    "torch": (".venv", "plain.py", "dp=2"),
    "transformers": (".venv-transformers", "trainer.py", "dp=2"),
    "megatron": (".venv-megatron", "megatron_gpt.py", "tp=2"),
}
SOURCES = ("loader", "generator")


def add_options(parser):
    parser.add_argument("--program", choices=PROGRAMS, nargs="+", default=list(PROGRAMS), help="(default: all)")
    parser.add_argument("--start", type=float, default=20, help="seconds that a program waits first (default: 20)")


def run(options):
    program = (options.build / "bin" / "ttrace").resolve()
    rows = []
    for name in options.program:
        for source in SOURCES:
            rows.append(verdict_of(program, name, source, options.start))
            print("{program:14} {source:10} {verdict:10} {launches} launches, {seconds:6.1f} s".format(**rows[-1]))
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if all(row["verdict"] == "same" for row in rows) else 1


def verdict_of(program, name, source, start):
    environment, script, axes = PROGRAMS[name]
    python = ROOT / environment / "bin" / "python"
    train = f"{HERE / 'launched' / script} --from {source} --wait {start}"
    job = {"inputs": [str(HERE / "launched")]}
    several = f"{python} -m torch.distributed.run --standalone --nproc-per-node 2"
    candidate = {"name": axes.replace("=", ""), "axes": axes, "command": f"{several} {train}"}
    file = {"reference": {"command": f"{python} {train}", **job}, "candidates": [candidate | job]}
    if name == "megatron":
        file["annotations"] = "megatron_gpt"
    with tempfile.TemporaryDirectory(prefix="ttrace-launches-") as folder:
        path = pathlib.Path(folder, "ttrace.yaml")
        path.write_text(json.dumps(file))
        started = time.monotonic()
        process = subprocess.run([program, "run", "--json", "report.json"], cwd=folder, capture_output=True, text=True)
        seconds = time.monotonic() - started
        launches = re.search(r"(\d+) runs? of the program", process.stderr)
        if launches is None:
            sys.exit(f"tools/bench launches: {name}: {process.stderr[-2000:]}")
        verdict = json.loads(pathlib.Path(folder, "report.json").read_text())["verdict"]
    return {
        "program": name,
        "source": source,
        "verdict": verdict,
        "launches": int(launches[1]),
        "seconds": round(seconds, 1),
        "start": start,
    }
