"""How far correct parallel runs are from what is allowed: what the margin and the default estimator are chosen from.

The models are the sweep's, and GPTs of 2 to 64 layers, of 64 to 512 hidden units, with Adam and with SGD. Each has one
reference, with tolerances by both estimators; each candidate is collected once and checked against both.

A *ratio* is rel_err / max(estimate, floor) of one tensor (kind and name), the largest of its micro-batches and
iterations: a margin below it calls the tensor wrong. Initial parameters, integers, and what either estimator leaves
untrusted have none.

`python -m evaluations.margins [--quick]`, in tools/laboratory, prints it all."""

import csv
import math
import shutil
import sys
import tempfile
from pathlib import Path

from sweeps.configurations import GPT, Configuration, Model, configurations
from sweeps.runs import References, check, collect, estimate

from .corpus import CASES, Case
from .tails import false_alarms, quantile

ESTIMATORS = ("input", "modules")
DTYPES = ("bf16", "fp32")
QUANTILES = (0.5, 0.9, 0.99, 0.999)
MARGINS = (1.5, 2.0, 2.5, 3.0, 4.0)
_WAYS = [(dict(tp=2, cp=2), "--sp"), (dict(tp=2, dp=2), "--sp")]

# 4 layers of 64 with Adam are the sweep's.
_MODELS = [
    *(Model(f"gpt-{layers}-layers", f"--layers {layers}") for layers in (2, 8, 16, 32, 64)),
    *(Model(f"gpt-{hidden}-hidden", f"--layers 2 --hidden {hidden}") for hidden in (128, 256, 512)),
    *(Model(f"gpt-seed-{seed}", f"--seed {seed}") for seed in (1, 2, 3)),
    Model("gpt-sgd", "--optimizer sgd"),
    Model("gpt-16-layers-sgd", "--layers 16 --optimizer sgd"),
]


def correct_configurations(quick: bool) -> list[Configuration]:
    if quick:
        return [Configuration(GPT, "bf16", *_WAYS[1]), Configuration(GPT, "fp32", *_WAYS[0])]
    models = [
        Configuration(model, dtype, *_WAYS[number % 2]) for number, model in enumerate(_MODELS) for dtype in DTYPES
    ]
    return [*models, *configurations(quick=False)]


class Estimates:
    """References with the tolerances of both estimators, in `directory`; made when first needed."""

    def __init__(self, directory: Path):
        self.directory, self._references = directory, References(directory)
        self._made: dict[Path, dict[str, Path]] = {}

    def of(self, model: Model, dtype: str) -> tuple[Path, dict[str, Path]]:
        """The reference's directory, and the tolerance file of each estimator."""
        home = self._references.of(model, dtype)
        if home not in self._made:
            default = field("estimator", home / "tolerance.yaml")
            tolerances = {name: home / ("tolerance.yaml" if name == default else f"{name}.yaml") for name in ESTIMATORS}
            for name in set(ESTIMATORS) - {default}:
                estimate(home, model, dtype, tolerances[name], "--estimator", name)
            self._made[home] = tolerances
        return home, self._made[home]


def margin_rows(quick: bool, directory: Path) -> list[dict]:
    """A row for each tensor of each correct configuration and estimator: `configuration`, `dtype`, `estimator`, `kind`,
    `name`, `elements`, `rel_err`, `expected` (max(estimate, floor)), `ratio`, and whether the check called the whole
    configuration the `same`."""
    estimates = Estimates(directory)
    return [row for configuration in correct_configurations(quick) for row in rows_of(configuration, estimates)]


def rows_of(configuration: Configuration, estimates: Estimates, *arguments: str) -> list[dict]:
    """As `margin_rows`, of one configuration with further arguments of the program."""
    reference, tolerances = estimates.of(configuration.model, configuration.dtype)
    with tempfile.TemporaryDirectory(dir=estimates.directory) as home:
        collect(configuration, Path(home), *arguments)
        measured, same = {}, {}
        for estimator, tolerance in tolerances.items():
            same[estimator] = check(Path(home), reference, tolerance)["verdict"] == "same"
            measured[estimator] = ratios_of(Path(home) / "measured.csv", float(field("margin", tolerance)))
    common = set.intersection(*(set(tensors) for tensors in measured.values()))
    return [
        {
            "configuration": configuration.name,
            "dtype": configuration.dtype,
            "estimator": estimator,
            "same": same[estimator],
            "kind": kind,
            "name": name,
            **values,
        }
        for estimator, tensors in measured.items()
        for (kind, name), values in tensors.items()
        if (kind, name) in common
    ]


def quantile_rows(rows: list[dict]) -> list[dict]:
    """Per estimator, dtype and kind: the number of tensors, quantiles of the ratios, the tensor with the largest."""
    return [
        {
            "estimator": estimator,
            "dtype": dtype,
            "kind": kind,
            "tensors": len(group),
            **{f"q{100 * q:g}": quantile([row["ratio"] for row in group], q) for q in QUANTILES},
            **_largest(group),
        }
        for (estimator, dtype, kind), group in _grouped(rows, "estimator", "dtype", "kind").items()
    ]


def histogram_rows(rows: list[dict], width: float = 0.1) -> list[dict]:
    """Per estimator and dtype: how many ratios lie in [from, from + width)."""
    table = []
    for (estimator, dtype), group in _grouped(rows, "estimator", "dtype").items():
        counts: dict[int, int] = {}
        for row in group:
            bin_ = int(row["ratio"] / width)
            counts[bin_] = counts.get(bin_, 0) + 1
        table += [
            {"estimator": estimator, "dtype": dtype, "from": round(bin_ * width, 6), "tensors": counts[bin_]}
            for bin_ in sorted(counts)
        ]
    return table


def false_alarm_rows(rows: list[dict]) -> list[dict]:
    """Per estimator and margin, the probability that a correct configuration is called different: see `tails`. Those
    with equal errors in every tensor count once."""
    table = []
    for (estimator,), group in _grouped(rows, "estimator").items():
        outcomes = {
            tuple(sorted((row["kind"], row["name"], row["rel_err"]) for row in one)): max(row["ratio"] for row in one)
            for one in _grouped(group, "configuration").values()
        }
        largest = list(outcomes.values())
        table += [{"estimator": estimator, "margin": margin, **false_alarms(largest, margin)} for margin in MARGINS]
    return table


def estimator_rows(rows: list[dict]) -> list[dict]:
    """Per estimator: the largest ratio, which a margin must exceed; the geometric mean of what it expects, relative to
    what `input` expects of the same tensor; and their product, by which an estimator that separates better is smaller:
    what a typical tensor may then differ by."""
    expected = {
        (row["configuration"], row["kind"], row["name"]): row["expected"] for row in rows if row["estimator"] == "input"
    }
    table = []
    for (estimator,), group in _grouped(rows, "estimator").items():
        logs = [math.log(row["expected"] / expected[row["configuration"], row["kind"], row["name"]]) for row in group]
        largest, mean = max(row["ratio"] for row in group), math.exp(sum(logs) / len(logs))
        table.append({"estimator": estimator, "largest": largest, "expects": mean, "product": largest * mean})
    return table


def separation_rows(directory: Path, correct: list[dict]) -> list[dict]:
    """Per bug of the corpus and estimator: the ratio at the tensor that it must be found at, and how many times the
    largest ratio of the `correct` rows (as of `margin_rows`) that is."""
    estimates = Estimates(directory)
    largest = {
        estimator: max(row["ratio"] for row in group) for (estimator,), group in _grouped(correct, "estimator").items()
    }
    return [row for case in CASES for row in _separation(case, estimates, largest)]


def _separation(case: Case, estimates: Estimates, largest: dict[str, float]) -> list[dict]:
    found = [
        row
        for row in rows_of(case.configuration, estimates, "--bug", case.bug)
        if (row["name"], row["kind"]) == (case.first.name, case.first.kind)
    ]
    return [
        {
            "bug": case.bug,
            "number": case.number,
            "estimator": row["estimator"],
            "name": row["name"],
            "kind": row["kind"],
            "ratio": row["ratio"],
            "separation": row["ratio"] / largest[row["estimator"]],
        }
        for row in found
    ]


def ratios_of(table: Path, margin: float) -> dict[tuple[str, str], dict]:
    """The ratios, by kind and name, of what `ttrace check --csv` wrote."""
    tensors: dict[tuple[str, str], dict] = {}
    with table.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["verdict"] not in ("pass", "fail") or row["kind"] == "param" or not row["ratio"]:
                continue
            ratio, key = float(row["ratio"]) * margin, (row["kind"], row["name"])
            if key not in tensors or ratio > tensors[key]["ratio"]:
                tensors[key] = {
                    "elements": int(row["elements"]),
                    "rel_err": float(row["rel_err"]),
                    "expected": float(row["allowed"]) / margin,
                    "ratio": ratio,
                }
    return tensors


def field(name: str, tolerance: Path) -> str:
    with tolerance.open() as lines:
        return next(line.split(": ", 1)[1].strip() for line in lines if line.startswith(f"{name}: "))


def _grouped(rows: list[dict], *keys: str) -> dict[tuple, list[dict]]:
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def _largest(rows: list[dict]) -> dict:
    row = max(rows, key=lambda row: row["ratio"])
    return {"max": row["ratio"], "at": row["name"], "of": row["configuration"]}


def _print(title: str, rows: list[dict]) -> None:
    print(f"\n{title}\n\n| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(
            "| "
            + " | ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values())
            + " |"
        )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ttrace-margins-") as directory:
        correct, bugs = Path(directory) / "correct", Path(directory) / "bugs"
        correct.mkdir(), bugs.mkdir()
        rows = margin_rows("--quick" in sys.argv[1:], correct)
        shutil.rmtree(correct)
        _print("Ratios", quantile_rows(rows))
        _print("Estimators", estimator_rows(rows))
        _print("Histogram", histogram_rows(rows))
        _print("Probability of a false alarm, per configuration", false_alarm_rows(rows))
        _print("Bugs", separation_rows(bugs, rows))


if __name__ == "__main__":
    main()
