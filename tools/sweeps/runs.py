"""Runs of the training programs under ttrace: references with their tolerances, and candidates checked against them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

from . import launch
from .configurations import Configuration, Model

ROOT = Path(__file__).resolve().parents[2]
TTRACE = os.environ.get("TTRACE_PROGRAM", str(ROOT / "build" / "bin" / "ttrace"))


class RunError(Exception):
    """A command that could not do its work; the text is its output."""


def run(command: List[str], allowed=(0,)) -> int:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    if result.returncode not in allowed:
        raise RunError(f"{' '.join(command)}\nexit code {result.returncode}\n{result.stdout[-2000:]}{result.stderr[-4000:]}")
    return result.returncode


class References:
    """One reference run, with its tolerances, for each model and dtype; made when first needed."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._made: Dict[str, Path] = {}

    def of(self, model: Model, dtype: str) -> Path:
        """A directory with `trace`, `annotations.yaml` and `tolerance.yaml`."""
        key = f"{model.name}-{dtype}"
        if key not in self._made:
            home = self._directory / key
            home.mkdir()
            command = [sys.executable, program_of(model), "--dtype", dtype, *model.arguments.split()]
            annotations = home / "annotations.yaml"
            annotations.write_text(edited_preset(model))
            run([TTRACE, "collect", "-o", str(home / "trace"), "--iterations", model.iterations, "--", *command])
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


def collect(configuration: Configuration, home: Path, *arguments: str) -> None:
    """Runs this configuration, with these further arguments of the program; leaves `trace` and `annotations.yaml` in
    `home`."""
    annotations_of(configuration, home / "annotations.yaml")
    axes = ["--axes", configuration.axes] if configuration.axes else []
    run([TTRACE, "collect", "-o", str(home / "trace"), "--iterations", configuration.model.iterations, *axes, "--",
         sys.executable, launch.__file__, str(configuration.world_size), program_of(configuration.model),
         *configuration.arguments, *arguments])  # fmt: skip


def check(home: Path, reference: Path, tolerance: Path) -> dict:
    """The report (README.md, JSON) on what `collect` left in `home`; `measured.csv` there has every tensor."""
    run([TTRACE, "check", "--reference", str(reference / "trace"), "--candidate", str(home / "trace"), "-a",
         str(home / "annotations.yaml"), "-t", str(tolerance), "--json", str(home / "report.json"), "--csv",
         str(home / "measured.csv")], allowed=(0, 1))  # fmt: skip
    return json.loads((home / "report.json").read_text())


def report_of(configuration: Configuration, references: References, directory: Path, *arguments: str) -> dict:
    """The report on a run of this configuration, with these further arguments of the program."""
    reference = references.of(configuration.model, configuration.dtype)
    home = Path(tempfile.mkdtemp(dir=directory))
    collect(configuration, home, *arguments)
    report = check(home, reference, reference / "tolerance.yaml")
    shutil.rmtree(home)
    return report
