"""TTrace's Figure 8: what rounding alone does to each layer, by depth, dtype and architecture."""

import csv
from pathlib import Path
from typing import Dict, List, Tuple

from .bench import Bench
from .layers import ARCHITECTURES, along, deep, dtypes
from .markdown import number, table
from .peers import EPSILON
from .tolerance_file import read_tolerances

TITLE = "How rounding grows with depth"

DIRECTIONS = {"forward": "output", "backward": "grad_output"}


def measure(bench: Bench) -> dict:
    layers = 8 if bench.quick else 128
    pairs = [(name, dtype) for name in ARCHITECTURES for dtype in dtypes()]
    bench.prepare((deep(ARCHITECTURES[name], layers), dtype) for name, dtype in pairs)
    return {"layers": layers, "rows": [row_of(bench, name, dtype, layers) for name, dtype in pairs]}


def row_of(bench: Bench, architecture: str, dtype: str, layers: int) -> dict:
    files = bench.tolerances(deep(ARCHITECTURES[architecture], layers), dtype)
    tolerances = read_tolerances(files["input"])
    row = {"architecture": architecture, "dtype": dtype}
    for direction, kind in DIRECTIONS.items():
        estimates = {name: tolerance["estimate"] for (name, of), tolerance in tolerances.items() if of == kind}
        row[direction] = along("decoder.layers.{}", estimates, layers)
    return row


def render(data: dict) -> List[str]:
    rows, last = data["rows"], data["layers"] - 1
    marks = sorted({0, last // 4, last // 2, last})

    def cells(row: dict, direction: str) -> List[str]:
        return [number(row[direction][mark] and row[direction][mark] / EPSILON["bf16"], 2) for mark in marks]

    lines = [
        f"TTrace's Figure 8: the estimate (the largest relative error of three perturbed runs and a rerun of the reference) of "
        f"each layer's output and of the gradient with respect to it, models of {data['layers']} layers, in units of bf16's "
        "epsilon, 2^-7. Backward runs from the last layer to the first.",
        "",
        "![estimated tolerance by layer](figures/depth.svg)",
        "",
        "Data: [figures/depth.csv](figures/depth.csv).",
        "",
    ]
    header = [f"{direction}, layer {mark}" for direction in DIRECTIONS for mark in marks]
    return lines + table(["architecture", "dtype", *header],
                         [[row["architecture"], row["dtype"], *cells(row, "forward"), *cells(row, "backward")]
                          for row in rows])  # fmt: skip


def draw(data: dict, directory: Path) -> None:
    from . import plots  # only who draws needs matplotlib

    panels = [plots.Panel(f"{architecture}, {direction}", [
        plots.Curve(row["dtype"], [value and value / EPSILON["bf16"] for value in row[direction]])
        for row in data["rows"] if row["architecture"] == architecture] + [epsilon_line(plots, data["layers"])])
        for direction in DIRECTIONS for architecture in ARCHITECTURES]  # fmt: skip
    plots.draw(panels, "estimate / bf16 epsilon", directory / "depth.svg")
    with open(directory / "depth.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["architecture", "dtype", "direction", "layer", "estimate"])
        writer.writerows((row["architecture"], row["dtype"], direction, layer, value) for row in data["rows"]
                         for direction in DIRECTIONS for layer, value in enumerate(row[direction]))  # fmt: skip


def epsilon_line(plots, layers: int):
    return plots.Curve("bf16 epsilon", [1.0] * layers, "k:")
