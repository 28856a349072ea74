"""TTrace's Figure 8: what rounding alone does to each layer, by depth, dtype and architecture."""

import csv
from pathlib import Path

from . import plots
from .bench import Bench
from .layers import ARCHITECTURES, PRECISIONS, Precision, along, deep
from .markdown import number, table
from .peers import EPSILON
from .tolerance_file import read_tolerances

TITLE = "How rounding grows with depth"

DIRECTIONS = {"forward": "output", "backward": "grad_output"}


def measure(bench: Bench) -> dict:
    layers = 8 if bench.quick else 128
    pairs = [
        (name, precision)
        for name in (["GPT"] if bench.quick else ARCHITECTURES)
        for precision in PRECISIONS
        if (name, precision.name) != ("MoE", "fp8")
    ]  # experts have no FP8
    bench.prepare((deep(ARCHITECTURES[name], layers, p.arguments), p.dtype) for name, p in pairs)
    return {"layers": layers, "rows": [row_of(bench, name, precision, layers) for name, precision in pairs]}


def row_of(bench: Bench, architecture: str, precision: Precision, layers: int) -> dict:
    model = deep(ARCHITECTURES[architecture], layers, precision.arguments)
    tolerances = read_tolerances(bench.tolerance(model, precision.dtype))
    row = {"architecture": architecture, "precision": precision.name, "color": precision.color}
    for direction, kind in DIRECTIONS.items():
        estimates = {name: tolerance["estimate"] for (name, of), tolerance in tolerances.items() if of == kind}
        row[direction] = along("decoder.layers.{}", estimates, layers)
    return row


def render(data: dict) -> list[str]:
    rows, last = data["rows"], data["layers"] - 1
    marks = sorted({0, last // 4, last // 2, last})

    def cells(row: dict, direction: str) -> list[str]:
        return [number(row[direction][mark] and row[direction][mark] / EPSILON["bf16"], 2) for mark in marks]

    lines = [
        "TTrace's Figure 8: the estimate (the largest relative error of three perturbed runs and a rerun of the "
        f"reference) of each layer's output and of the gradient with respect to it, models of {data['layers']} "
        "layers, in units of bf16's epsilon, 2^-7. Backward runs from the last layer to the first. The paper has FP8 "
        "for MoE as well; tinygpt's experts have no FP8 linears, so that this curve is missing here.",
        "",
        "![estimated tolerance by layer](figures/depth.svg)",
        "",
        "Data: `build/evaluations/figures/depth.csv`, where `tools/evaluate` leaves it.",
        "",
    ]
    header = [f"{direction}, layer {mark}" for direction in DIRECTIONS for mark in marks]
    return lines + table(
        ["architecture", "precision", *header],
        [[row["architecture"], row["precision"], *cells(row, "forward"), *cells(row, "backward")] for row in rows],
    )


def draw(data: dict, directory: Path) -> None:
    epsilon = plots.Curve("bf16 epsilon", [1.0] * data["layers"], "#000000", plots.DOTTED)
    panels = [
        plots.Panel(
            f"{architecture}, {direction}",
            [
                plots.Curve(
                    row["precision"], [value and value / EPSILON["bf16"] for value in row[direction]], row["color"]
                )
                for row in data["rows"]
                if row["architecture"] == architecture
            ]
            + [epsilon],
        )
        for direction in DIRECTIONS
        for architecture in ARCHITECTURES
    ]
    plots.draw(panels, "estimate / bf16 epsilon", directory / "depth.svg")
    with open(directory / "depth.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["architecture", "precision", "direction", "layer", "estimate"])
        writer.writerows(
            (row["architecture"], row["precision"], direction, layer, value)
            for row in data["rows"]
            for direction in DIRECTIONS
            for layer, value in enumerate(row[direction])
        )
