"""Curves over layers or steps as SVG: the same bytes from the same numbers."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import leather
from leather import theme

SOLID, DASHED, DOTTED = "none", "6,3", "2,2"

theme.background_color = "#ffffff"
for text in ("title", "legend", "axis_title", "tick"):
    setattr(theme, f"{text}_font_family", "sans-serif")


@dataclass
class Curve:
    label: str
    values: Sequence[float | None]  # of layers 0, 1, ...; None where there is none
    color: str
    dashes: str = SOLID

    @property
    def points(self) -> list[tuple]:
        """Zeros have no place on a logarithmic axis."""
        return [(layer, math.log10(value)) for layer, value in enumerate(self.values) if value]


@dataclass
class Panel:
    title: str
    curves: list[Curve]


class Decades(leather.Linear):
    """Of logarithms: from one power of ten to another, where a Linear's ticks reach beyond its domain."""

    def project(self, value, range_min, range_max):
        share = (float(value) - float(self._data_min)) / float(self._data_max - self._data_min)
        return range_min + (range_max - range_min) * share

    def ticks(self):
        return range(int(self._data_min), int(self._data_max) + 1)

    def format_tick(self, value, i, count):
        return f"1e{value}"


def draw(panels: list[Panel], y_label: str, path: Path, x_label: str = "layer") -> None:
    """A grid of panels with one logarithmic axis for all."""
    heights = [y for panel in panels for curve in panel.curves for _, y in curve.points]
    bottom, top = math.floor(min(heights)), math.ceil(max(heights))
    grid = leather.Grid()
    for panel in panels:
        chart = leather.Chart(panel.title)
        for curve in panel.curves:
            if curve.points:
                chart.add_line(curve.points, name=curve.label, stroke_color=curve.color, stroke_dasharray=curve.dashes)
        chart.set_y_scale(Decades(bottom, max(top, bottom + 1)))
        chart.add_y_axis(name=y_label)
        if x_label != "layer":  # from the first step to the last, whether or not something differs there
            chart.set_x_scale(leather.Linear(0, max(1, *(len(curve.values) - 1 for curve in panel.curves))))
        chart.add_x_axis(name=x_label)
        grid.add_one(chart)
    grid.to_svg(str(path))
    # A tenth of a pixel is enough: with all digits of a double the file is twice as large.
    path.write_text(re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", path.read_text()))
