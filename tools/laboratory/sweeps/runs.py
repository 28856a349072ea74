"""Runs of the training programs under ttrace: references with their tolerances, and candidates checked against them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import launch, warm
from .configurations import Configuration, Model, dtype_arguments

ROOT = Path(__file__).resolve().parents[3]
TTRACE = os.environ.get("TTRACE_PROGRAM", str(ROOT / "build" / "bin" / "ttrace"))


class RunError(Exception):
    """A command that could not do its work; the text is its output."""


def run(command: list[str], allowed=(0,)) -> str:
    """What the command prints on stdout."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    if result.returncode not in allowed:
        raise RunError(
            f"{' '.join(command)}\nexit code {result.returncode}\n{result.stdout[-2000:]}{result.stderr[-4000:]}"
        )
    return result.stdout


class References:
    """One reference run, with its tolerances, for each model and dtype; made when first needed. `options`: of
    `ttrace collect`."""

    def __init__(self, directory: Path, options: Sequence[str] = ()):
        self._directory = directory
        self._options = options
        self._made: dict[str, Path] = {}

    def of(self, model: Model, dtype: str) -> Path:
        """A directory with `trace`, `annotations.yaml`, `tolerance.yaml` of the default estimator, and in `output.txt`
        what the program printed."""
        key = f"{model.name}-{dtype}"
        if key not in self._made:
            home = self._directory / key
            collect_reference(home, model, dtype, options=self._options)
            estimate(home, model, dtype, home / "tolerance.yaml")
            self._made[key] = home
        return self._made[key]


def collect_reference(
    home: Path, model: Model, dtype: str, program: Sequence[str] = (), options: Sequence[str] = ()
) -> None:
    """Runs the model on one process, or on those of its own reference. Makes `home`, with `trace`, `annotations.yaml`,
    and `output.txt`, what it printed. `program`, `options`: as for `collect`."""
    home.mkdir()
    write_annotations(home / "annotations.yaml", model.annotations, model.parameters)
    output = run(
        [
            TTRACE,
            "collect",
            "-o",
            str(home / "trace"),
            "--iterations",
            model.iterations,
            *_axes_of(model, dtype),
            *options,
            "--",
            *_command_of(model, dtype, program),
        ]
    )
    (home / "output.txt").write_text(output)


def estimate(
    home: Path,
    model: Model,
    dtype: str,
    output: Path,
    *options: str,
    keep_runs: bool = False,
    program: Sequence[str] = (),
) -> None:
    """Tolerances for the reference in `home`, with these options of `ttrace estimate-tolerance`. The runs that they
    come from stay in `home`, in `runs`, where they are to be kept. `program`: as for `collect`."""
    run(
        [
            TTRACE,
            "estimate-tolerance",
            "-j",
            "2",
            "--reference",
            str(home / "trace"),
            "--runs",
            str(home / "runs"),
            "-a",
            str(home / "annotations.yaml"),
            "-o",
            str(output),
            *_axes_of(model, dtype),
            *options,
            "--",
            *_command_of(model, dtype, program),
        ]
    )
    if not keep_runs:
        shutil.rmtree(home / "runs")


def _axes_of(model: Model, dtype: str) -> list[str]:
    """Of a reference of several ranks."""
    return ["--axes", Configuration(model, dtype, model.reference).axes] if model.reference else []


def _command_of(model: Model, dtype: str, program: Sequence[str]) -> list[str]:
    """Of the reference."""
    started = program or [program_of(model)]
    if model.reference:
        configuration = Configuration(model, dtype, model.reference)
        ranks = [launch.__file__, str(configuration.world_size)]
        return [sys.executable, warm.__file__, *ranks, *started, *configuration.arguments]
    return [sys.executable, warm.__file__, *started, *dtype_arguments(dtype), *model.arguments.split()]


def program_of(model: Model) -> str:
    return str(ROOT / "tools" / model.program / "train.py")


def write_annotations(path: Path, preset: Path, parameters: dict[str, int | str]) -> None:
    """The preset with these parameters, as an annotation file."""
    path.write_text(json.dumps({"include": str(preset), "parameters": parameters}, indent=2) + "\n")


def collect(
    configuration: Configuration, home: Path, *arguments: str, options: Sequence[str] = (), program: Sequence[str] = ()
) -> None:
    """Runs this configuration, with these further arguments of the program and options of `ttrace collect`; leaves
    `trace`, `annotations.yaml` and `output.txt`, what it printed, in `home`. `program`: in place of the model's, with
    its first arguments."""
    write_annotations(home / "annotations.yaml", configuration.model.annotations, configuration.parameters)
    axes = ["--axes", configuration.axes] if configuration.axes else []
    output = run(
        [
            TTRACE,
            "collect",
            "-o",
            str(home / "trace"),
            "--iterations",
            configuration.model.iterations,
            *axes,
            *options,
            "--",
            sys.executable,
            warm.__file__,
            launch.__file__,
            str(configuration.world_size),
            *(program or [program_of(configuration.model)]),
            *configuration.arguments,
            *arguments,
        ]
    )
    (home / "output.txt").write_text(output)


def check(home: Path, reference: Path, tolerance: Path, allowed: tuple[int, ...] = (0, 1)) -> dict:
    """The report (src/manual/report.md) on what `collect` left in `home`; `measured.csv` there has every tensor.
    Raises on exit codes that are not allowed, as that of a question."""
    is_parallel = len(list((reference / "trace").glob("rank-*.h5"))) > 1  # pipelines may have other stages
    run(
        [
            TTRACE,
            "check",
            "--reference",
            str(reference / "trace"),
            "--candidate",
            str(home / "trace"),
            "-a",
            str(home / "annotations.yaml"),
            *(["--reference-annotations", str(reference / "annotations.yaml")] if is_parallel else []),
            "-t",
            str(tolerance),
            "--json",
            str(home / "report.json"),
            "--csv",
            str(home / "measured.csv"),
        ],
        allowed=allowed,
    )
    return json.loads((home / "report.json").read_text())


def localize(home: Path, reference: Path, tolerance: Path) -> dict:
    """The report of `ttrace localize` on what `collect` left in `home`."""
    run(
        [
            TTRACE,
            "localize",
            "--reference",
            str(reference / "trace"),
            "--candidate",
            str(home / "trace"),
            "-a",
            str(home / "annotations.yaml"),
            "-t",
            str(tolerance),
            "--json",
            str(home / "localized.json"),
            "--run-recorded",
        ],
        allowed=(0, 1),
    )
    return json.loads((home / "localized.json").read_text())


def inject(configuration: Configuration, home: Path, reference: Path, tolerance: Path) -> dict:
    """The report on what `collect` left in `home`, collected once more, its modules given the reference's values."""
    first = (home / "trace").rename(home / "first")
    collect(
        configuration,
        home,
        options=("--inject", str(reference / "trace"), "--layout", str(first), "-a", str(home / "annotations.yaml")),
    )
    return check(home, reference, tolerance)


def self_check(home: Path) -> dict:
    """The report of `ttrace abft` on what `collect` left in `home`: no reference is needed."""
    run(
        [TTRACE, "abft", str(home / "trace"), "-a", str(home / "annotations.yaml"), "--json", str(home / "abft.json")],
        allowed=(0, 1),
    )
    return json.loads((home / "abft.json").read_text())


def report_of(configuration: Configuration, references: References, directory: Path, *arguments: str) -> dict:
    """The report on a run of this configuration, with these further arguments of the program."""
    reference = references.of(configuration.model, configuration.dtype)
    home = Path(tempfile.mkdtemp(dir=directory))
    collect(configuration, home, *arguments)
    report = check(home, reference, reference / "tolerance.yaml")
    shutil.rmtree(home)
    return report
