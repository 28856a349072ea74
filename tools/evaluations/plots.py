"""Curves over layers as SVG: the same bytes from the same numbers."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Sequence

import leather
from leather import theme

SOLID, DASHED, DOTTED = "none", "6,3", "2,2"

theme.background_color = "#ffffff"
for text in ("title", "legend", "axis_title", "tick"):
    setattr(theme, f"{text}_font_family", "sans-serif")


@dataclass
class Curve:
    label: str
    values: Sequence[Optional[float]]  # of layers 0, 1, ...; None where there is none
    color: str
    dashes: str = SOLID

    @property
    def points(self) -> List[tuple]:
        """Zeros have no place on a logarithmic axis."""
        return [(layer, math.log10(value)) for layer, value in enumerate(self.values) if value]


@dataclass
class Panel:
    title: str
    curves: List[Curve]


class Decades(leather.Linear):
    """Of logarithms: from one power of ten to another, where a Linear's ticks reach beyond its domain."""

    def project(self, value, range_min, range_max):
        share = (float(value) - float(self._data_min)) / float(self._data_max - self._data_min)
        return range_min + (range_max - range_min) * share

    def ticks(self):
        return range(int(self._data_min), int(self._data_max) + 1)

    def format_tick(self, value, i, count):
        return f"1e{value}"


def draw(panels: List[Panel], y_label: str, path: Path) -> None:
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
        chart.add_x_axis(name="layer")
        grid.add_one(chart)
    grid.to_svg(str(path))
