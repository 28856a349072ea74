"""TTrace's Figure 9: the error that a bug makes, beside the estimate and the error of the correct program, by layer."""

import csv
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from . import plots
from .bench import Bench, Run
from .corpus import CASES, Case
from .layers import LAYER, along, deep
from .markdown import number, table
from .peers import epsilon_of
from .tolerance_file import read_tolerances

TITLE = "Errors of bugs beside errors of rounding"


@dataclass(frozen=True)
class Subject:
    """Of which bug, and which tensor of each layer: the layer's output, or where None the bug's own first tensor."""

    number: int  # in Table 1
    direction: str
    name: str = ""
    kind: str = ""
    dtype: str = ""  # in place of the bug's own


SUBJECTS = [
    Subject(1, "forward", "decoder.layers.{}", "output"),
    Subject(1, "forward", "decoder.layers.{}", "output", "fp8"),
    Subject(11, "backward"),
]
CURVES = {"wrong": ("#ee6677", plots.SOLID), "estimate": ("#4477aa", plots.DASHED), "correct": ("#228833", plots.SOLID)}


def measure(bench: Bench) -> dict:
    layers = 8 if bench.quick else 32
    found = [
        (
            subject,
            replace(case, configuration=replace(case.configuration, dtype=subject.dtype or case.configuration.dtype)),
        )
        for subject in SUBJECTS
        for case in CASES
        if case.number == subject.number
    ]
    bench.prepare((deep(case.configuration.model, layers), case.configuration.dtype) for _, case in found)
    return {
        "layers": layers,
        "rows": bench.map("bug errors", lambda pair: row_of(bench, *pair, layers), found, lambda pair: pair[1].bug),
    }


def row_of(bench: Bench, subject: Subject, case: Case, layers: int) -> dict:
    model = deep(case.configuration.model, layers)
    configuration = replace(case.configuration, model=model)
    name = subject.name or LAYER.sub("decoder.layers.{}", case.first.name)
    kind = subject.kind or case.first.kind
    row = {
        "number": case.number,
        "bug": case.bug,
        "direction": subject.direction,
        "configuration": configuration.name,
        "tensor": f"{name} {kind}",
        "epsilon": epsilon_of(configuration.dtype),
    }
    for curve, arguments in (("wrong", ("--bug", case.bug)), ("correct", ())):
        run = bench.run(configuration, *arguments)
        run.report()
        row[curve] = along(name, errors(run, kind), layers)
        shutil.rmtree(run.home)
    tolerances = read_tolerances(bench.tolerance(model, configuration.dtype))
    row["estimate"] = along(name, {of: t["estimate"] for (of, k), t in tolerances.items() if k == kind}, layers)
    return row


def errors(run: Run, kind: str) -> dict[str, float]:
    """By name, the largest relative error over micro-batches."""
    largest: dict[str, float] = {}
    for row in run.measured():
        if row["kind"] == kind and row["pass"] == "forward" and row["rel_err"]:
            largest[row["name"]] = max(largest.get(row["name"], 0.0), float(row["rel_err"]))
    return largest


def render(data: dict) -> list[str]:
    lines = [
        "TTrace's Figure 9: relative errors by layer, in units of the compute dtype's epsilon. *wrong*: the program "
        "with the bug; *correct*: its correct twin on the same ranks, both against the run of one process; *estimate*: "
        "what perturbed runs of one process foretell. The paper has FP8 for both; here bug 11 has none, since "
        "FP8 linears gather codes, and not into the buffer that the bug keeps.",
        "",
        "![errors by layer](figures/bug_errors.svg)",
        "",
        "Data: `build/evaluations/figures/bug_errors.csv`, where `tools/evaluate` leaves it.",
        "",
    ]

    def middle(row: dict, curve: str) -> str:
        values = sorted(value / row["epsilon"] for value in row[curve] if value)
        return number(values[len(values) // 2], 2) if values else "0"

    header = ["bug", "configuration", "tensor of each layer", *(f"{curve}, median layer" for curve in CURVES)]
    return lines + table(
        header,
        [
            [row["bug"], row["configuration"], f"`{row['tensor']}`", *(middle(row, curve) for curve in CURVES)]
            for row in data["rows"]
        ],
    )


def draw(data: dict, directory: Path) -> None:
    panels = [
        plots.Panel(
            f"bug {row['number']}, {row['direction']}{', fp8' if ' fp8 ' in row['configuration'] else ''}",
            [
                plots.Curve(curve, [value and value / row["epsilon"] for value in row[curve]], *style)
                for curve, style in CURVES.items()
            ],
        )
        for row in data["rows"]
    ]
    if panels:
        plots.draw(panels, "relative error / epsilon", directory / "bug_errors.svg")
    with open(directory / "bug_errors.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["number", "bug", "configuration", "direction", "tensor", "layer", *CURVES])
        writer.writerows(
            (
                row["number"],
                row["bug"],
                row["configuration"],
                row["direction"],
                row["tensor"],
                layer,
                *(row[curve][layer] for curve in CURVES),
            )
            for row in data["rows"]
            for layer in range(data["layers"])
        )
