"""How far correct parallel runs are from what is allowed, in units of max(estimate, floor): what the margin and the
default estimator are chosen from.

The models are the sweep's, and GPTs of 2 to 64 layers, of 64 to 512 hidden units, with Adam and with SGD. Each has one
reference, estimated by both estimators from runs of its own; each candidate is collected once and checked against both.

A *ratio* is rel_err / max(estimate, floor) of one tensor (kind and name), the largest of its micro-batches and
iterations. Tensors that are exact, or untrusted with either of the estimators, have none."""

import csv
import math
import shutil
from pathlib import Path
from typing import Dict, List, Tuple

from sweeps.configurations import GPT, Configuration, Model, configurations
from sweeps.runs import TTRACE, References, collect, estimate, run

from .corpus import CASES, Case

ESTIMATORS = ("input", "modules")
DTYPES = ("bf16", "fp32")
_BOTH_WAYS = [(dict(tp=2, cp=2), "--sp"), (dict(tp=2, dp=2), "--sp")]

_MODELS = [
    *(Model(f"gpt-{layers}-layers", f"--layers {layers}") for layers in (2, 8, 16, 32, 64)),  # 4: the sweep's
    *(Model(f"gpt-{hidden}-hidden", f"--layers 2 --hidden {hidden}") for hidden in (128, 256, 512)),  # 64: above
    Model("gpt-sgd", "--optimizer sgd"),
    Model("gpt-16-layers-sgd", "--layers 16 --optimizer sgd"),
    *(Model(f"gpt-seed-{seed}", f"--seed {seed}") for seed in (1, 2, 3)),
]
_QUICK = [
    Configuration(GPT, "bf16", *_BOTH_WAYS[1]),
    Configuration(GPT, "fp32", *_BOTH_WAYS[0]),
    Configuration(_MODELS[2], "bf16", *_BOTH_WAYS[0]),
]


def correct_configurations(quick: bool) -> List[Configuration]:
    if quick:
        return _QUICK
    models = [Configuration(model, dtype, *way) for model in _MODELS for dtype in DTYPES for way in _BOTH_WAYS]
    return [*models, *configurations(quick=False)]


class _Estimates:
    """References with the tolerances of both estimators."""

    def __init__(self, directory: Path):
        self._directory, self._references = directory, References(directory)
        self._made: Dict[Path, Dict[str, Path]] = {}

    def of(self, model: Model, dtype: str) -> Tuple[Path, Dict[str, Path]]:
        """The reference's trace, and the tolerance file of each estimator."""
        home = self._references.of(model, dtype)
        if home not in self._made:
            default = _field("estimator", home / "tolerance.yaml")
            tolerances = {name: home / ("tolerance.yaml" if name == default else f"{name}.yaml") for name in ESTIMATORS}
            for name in set(ESTIMATORS) - {default}:
                estimate(home, model, dtype, tolerances[name], "--estimator", name)
            self._made[home] = tolerances
        return home / "trace", self._made[home]


def margin_rows(quick: bool, directory: Path) -> List[dict]:
    """A row for each tensor of each correct configuration and estimator: `configuration`, `model`, `dtype`,
    `estimator`, `kind`, `name`, `elements`, `rel_err`, `allowed_without_margin` and `ratio`. `directory` gets the
    traces of the references and what the checks measured."""
    estimates = _Estimates(directory)
    return [row for configuration in correct_configurations(quick) for row in _measured(configuration, estimates, directory)]


def _measured(configuration: Configuration, estimates: _Estimates, directory: Path, *arguments: str) -> List[dict]:
    reference, tolerances = estimates.of(configuration.model, configuration.dtype)
    home = directory / "_".join([configuration.name, *arguments]).replace(" ", "_")
    home.mkdir()
    check = collect(configuration, home, *arguments)
    measured = {}
    for estimator, tolerance in tolerances.items():
        table = home / f"{estimator}.csv"
        run([*check, "--reference", str(reference), "-t", str(tolerance), "--csv", str(table)], allowed=(0, 1))
        measured[estimator] = _ratios(table, tolerance)
    shutil.rmtree(home / "trace")
    both = measured["input"].keys() & measured["modules"].keys()
    return [
        {"configuration": configuration.name, "model": configuration.model.name, "dtype": configuration.dtype,
         "estimator": estimator, "kind": kind, "name": name, **values}
        for estimator, tensors in measured.items()
        for (kind, name), values in tensors.items()
        if (kind, name) in both
    ]  # fmt: skip


def _ratios(table: Path, tolerance: Path) -> Dict[Tuple[str, str], dict]:
    """By kind and name, of what `ttrace check --csv` wrote."""
    margin = float(_field("margin", tolerance))
    tensors: Dict[Tuple[str, str], dict] = {}
    for row in csv.DictReader(table.open()):
        if row["verdict"] not in ("pass", "fail") or row["kind"] == "param" or not row["ratio"]:
            continue
        ratio, key = float(row["ratio"]) * margin, (row["kind"], row["name"])
        if key not in tensors or ratio > tensors[key]["ratio"]:
            tensors[key] = {"elements": int(row["elements"]), "rel_err": float(row["rel_err"]),
                            "allowed_without_margin": float(row["allowed"]) / margin, "ratio": ratio}  # fmt: skip
    return tensors


def _field(name: str, tolerance: Path) -> str:
    with tolerance.open() as lines:
        return next(line.split(": ", 1)[1].strip() for line in lines if line.startswith(f"{name}: "))
