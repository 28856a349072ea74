"""Curves over layers as SVG: the same bytes from the same numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Sequence

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "ttrace"  # ids that do not change from run to run
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
from matplotlib import pyplot  # noqa: E402


@dataclass
class Curve:
    label: str
    values: Sequence[Optional[float]]  # of layers 0, 1, ...; None where there is none
    style: str = "-"


@dataclass
class Panel:
    title: str
    curves: List[Curve]


def draw(panels: List[Panel], y_label: str, path: Path) -> None:
    """Panels side by side with a common logarithmic axis."""
    figure, axes = pyplot.subplots(1, len(panels), figsize=(0.8 + 3.8 * len(panels), 3.6), sharey=True, squeeze=False)
    for panel, axis in zip(panels, axes[0]):
        for curve in panel.curves:
            layers = [layer for layer, value in enumerate(curve.values) if value]
            axis.plot(layers, [curve.values[layer] for layer in layers], curve.style, label=curve.label, linewidth=1.2)
        axis.set_yscale("log")
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel("layer")
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel(y_label)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
