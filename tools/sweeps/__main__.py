import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List

from . import launch
from .configurations import Configuration, Model, configurations

ROOT = Path(__file__).resolve().parents[2]
TTRACE = os.environ.get("TTRACE_PROGRAM", str(ROOT / "build" / "bin" / "ttrace"))
TABLE = ROOT / "tools" / "sweeps" / "RESULTS.md"


class SweepError(Exception):
    """A command that could not do its work; the text is its output."""


def run(command: List[str], allowed=(0,)) -> int:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    if result.returncode not in allowed:
        raise SweepError(f"{' '.join(command)}\nexit code {result.returncode}\n{result.stdout[-2000:]}{result.stderr[-4000:]}")
    return result.returncode


class References:
    """One reference run, with its tolerances, for each model and dtype; made when first needed."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._made: Dict[str, Path] = {}

    def of(self, model: Model, dtype: str) -> Path:
        key = f"{model.name}-{dtype}"
        if key not in self._made:
            home = self._directory / key
            home.mkdir()
            command = [sys.executable, program_of(model), "--dtype", dtype, *model.arguments.split()]
            annotations = home / "annotations.yaml"
            annotations.write_text(edited_preset(model))
            run([TTRACE, "collect", "-o", str(home / "trace"), "--", *command])
            run([TTRACE, "estimate-tolerance", "--reference", str(home / "trace"), "--runs", str(home / "runs"), "-a",
                 str(annotations), "-o", str(home / "tolerance.yaml"), "--", *command])  # fmt: skip
            shutil.rmtree(home / "runs")
            self._made[key] = home
        return self._made[key]


def program_of(model: Model) -> str:
    return str(ROOT / "tools" / model.program / "train.py")


def edited_preset(model: Model) -> str:
    text = (ROOT / "annotations" / model.preset).read_text()
    for before, after in model.edits:
        assert before in text, f"{model.preset} has no '{before}'"
        text = text.replace(before, after)
    return text


def annotations_of(configuration: Configuration, path: Path) -> Path:
    """The preset with the model's own numbers and the configuration's order of tokens."""
    text = edited_preset(configuration.model)
    words = configuration.flags.split()
    if "--cp-layout" in words:
        text = text.replace("layout: zigzag", f"layout: {words[words.index('--cp-layout') + 1]}")
    if "--first-stage-layers" in words:
        first = words[words.index("--first-stage-layers") + 1]
        text = text.replace("layers: decoder.layers}", f"layers: decoder.layers, first: {first}}}")
    path.write_text(text)
    return path


def check(configuration: Configuration, references: References, directory: Path) -> dict:
    reference = references.of(configuration.model, configuration.dtype)
    home = Path(tempfile.mkdtemp(dir=directory))
    annotations = annotations_of(configuration, home / "annotations.yaml")
    started = time.monotonic()
    axes = ["--axes", configuration.axes] if configuration.axes else []
    run([TTRACE, "collect", "-o", str(home / "trace"), *axes, "--", sys.executable, launch.__file__,
         str(configuration.world_size), program_of(configuration.model), *configuration.arguments])  # fmt: skip
    run([TTRACE, "check", "--reference", str(reference / "trace"), "--candidate", str(home / "trace"), "-a",
         str(annotations), "-t", str(reference / "tolerance.yaml"), "--json", str(home / "report.json")],
        allowed=(0, 1))  # fmt: skip
    report = json.loads((home / "report.json").read_text())
    shutil.rmtree(home)
    cause = report["root_cause"]
    return {
        "name": configuration.name,
        "ranks": configuration.world_size,
        "same": report["verdict"] == "pass",
        "coverage": report["coverage"],
        **report["counts"],
        "waived": report["waived"],
        "first_wrong": cause["message"] if cause else None,
        "seconds": round(time.monotonic() - started, 1),
    }


def summary(rows: List[dict]) -> dict:
    same = sum(row["same"] for row in rows)
    return {
        "configurations": len(rows),
        "same": same,
        "different": len(rows) - same,
        "coverage_min": min(row["coverage"] for row in rows),
        "rows": rows,
    }


def table(result: dict) -> str:
    lines = [
        "# Correct parallel configurations",
        "",
        "Made by `tools/sweep`. Each is collected from real processes over gloo and checked against the run of one "
        "process; *coverage* is the share of the reference's tensors that were compared.",
        "",
        f"{result['configurations']} configurations: {result['same']} same, {result['different']} different; "
        f"least coverage {result['coverage_min']:.0%}.",
        "",
        "| configuration | ranks | verdict | coverage | compared | pass | untrusted | missing | fail |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        lines.append(f"| {row['name']} | {row['ranks']} | {'same' if row['same'] else 'different'} | {row['coverage']:.0%} "
                     f"| {row['compared']} | {row['pass']} | {row['untrusted']} | {row['missing']} | {row['fail']} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/sweep",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs correct parallel configurations of tinygpt and torchgpt on real processes and checks each against one\n"
        "process: every one must be the same, with all of the reference's tensors compared.",
        epilog="Exit code: 0 when every configuration is the same, 1 when one is different, 2 when one could not be\n"
        "run. The whole sweep also writes tools/sweeps/RESULTS.md.\n\n"
        "Examples:\n  tools/sweep --quick\n  tools/sweep --only 'gpt-packed' --json packed.json",
    )
    parser.add_argument("--quick", action="store_true", help="about a dozen configurations, one of each kind")
    parser.add_argument("--only", metavar="TEXT", default="", help="configurations whose name contains TEXT")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results there")
    options = parser.parse_args()
    chosen = [c for c in configurations(options.quick) if options.only in c.name]
    if options.list:
        print("\n".join(c.name for c in chosen))
        return 0
    if not chosen:
        parser.error(f"--only '{options.only}': no configuration has that in its name; --list prints them")
    rows = []
    with tempfile.TemporaryDirectory(prefix="ttrace-sweep-") as directory:
        references = References(Path(directory))
        for number, configuration in enumerate(chosen, 1):
            try:
                row = check(configuration, references, Path(directory))
            except SweepError as error:
                print(f"sweep: error: {configuration.name}: {error}", file=sys.stderr)
                return 2
            rows.append(row)
            print(f"[{number}/{len(chosen)}] {'same     ' if row['same'] else 'DIFFERENT'} {row['coverage']:4.0%} "
                  f"{row['seconds']:5.1f} s  {row['name']}", flush=True)  # fmt: skip
            if not row["same"]:
                print(f"    {row['first_wrong']}", flush=True)
    result = summary(rows)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if not options.quick and not options.only:
        TABLE.write_text(table(result))
    print(f"{result['same']} of {result['configurations']} the same; least coverage {result['coverage_min']:.0%}")
    return 0 if result["different"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
