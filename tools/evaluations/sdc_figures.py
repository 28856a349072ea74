"""Figures of a suspect node, from the tables of `ttrace sdc --csv DIRECTORY` ("Understanding silent data corruption in
LLM training", figures 3 to 6):

frequency.svg, severity.svg  each type of submodule that differs, over micro-steps, a colour for each rank
steps.svg                    noise of the gradients and drift of the parameters, relative to their norms, over steps"""

import argparse
import csv
import pathlib
import sys

from evaluations import plots

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#000000")


def main():
    parser = argparse.ArgumentParser(
        prog="tools/plot-sdc", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=pathlib.Path)
    directory = parser.parse_args().directory
    ranks, steps = rows_of(directory / "ranks.csv"), rows_of(directory / "steps.csv")
    for measure, what in (("frequency", "share of elements that differ"), ("severity", "mean relative difference")):
        draw(submodule_panels(ranks, measure), what, "micro-step", directory / f"{measure}.svg")
    draw(step_panels(steps), "relative to the norm", "step", directory / "steps.svg")


def rows_of(path):
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        sys.exit(f"plot-sdc: {path}: {error.strerror}; expected what `ttrace sdc --csv` writes")


def draw(panels, what, x_label, path):
    """Without a panel there is nothing to see; an older figure must not stay."""
    path.unlink(missing_ok=True)
    if panels:
        plots.draw(panels, what, path, x_label)
    print(f"{path}: {len(panels)} panels" if panels else f"{path.name}: nothing differs, not written")


def submodule_panels(rows, measure):
    microsteps = sorted({(int(row["iteration"]), int(row["microbatch"])) for row in rows})
    curves = {}  # by type, direction and rank: a value for each micro-step
    for row in rows:
        values = curves.setdefault((row["submodule"], row["direction"]), {}).setdefault(
            int(row["rank"]), [None] * len(microsteps)
        )
        values[microsteps.index((int(row["iteration"]), int(row["microbatch"])))] = float(row[measure])
    return [
        plots.Panel(
            f"{submodule}, {direction}",
            [
                plots.Curve(f"rank {rank}", values, COLORS[rank % len(COLORS)], dots=True)
                for rank, values in sorted(of_ranks.items())
                if any(values)
            ],
        )
        for (submodule, direction), of_ranks in curves.items()
        if any(map(any, of_ranks.values()))
    ]


def step_panels(rows):
    def ratios(part, whole):
        return [float(row[part]) / float(row[whole]) if row[part] and float(row[whole] or 0) else None for row in rows]

    panels = [
        plots.Panel(title, [plots.Curve(part.replace("_", " "), ratios(part, whole), color, dots=True)])
        for title, part, whole, color in (
            ("noise to signal (equation 5)", "gradient_noise", "gradient_norm", COLORS[0]),
            ("parameter drift", "parameter_drift", "parameter_norm", COLORS[1]),
        )
    ]
    return [panel for panel in panels if any(panel.curves[0].values)]


if __name__ == "__main__":
    main()
