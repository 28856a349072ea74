"""The evidence page. Nothing on it is typed by hand: `results.json` in the build directory keeps what was measured, and
the page is made from it, so that a section can be measured again alone. The page and its figures are copied beside this
file, to be published, once every section has been measured."""

import json
import os
import platform
import shutil
from pathlib import Path

import torch

from . import bug_errors, bugs, cost, depth, false_alarms, localization, mutants, rules, sensitivity
from .peers import BUILD

HERE = Path(__file__).resolve().parent
MEASURED = BUILD / "evaluations"
PAGE, RESULTS, FIGURES = MEASURED / "RESULTS.md", MEASURED / "results.json", MEASURED / "figures"

# In the order of the page. Each module has a TITLE, measure(bench), which returns what JSON can hold, and render(that),
# the lines of Markdown; those with figures have draw(that, directory).
SECTIONS = {
    "bugs": bugs,
    "localization": localization,
    "false-alarms": false_alarms,
    "mutants": mutants,
    "rules": rules,
    "depth": depth,
    "bug-errors": bug_errors,
    "sensitivity": sensitivity,
    "cost": cost,
}


def load() -> dict[str, dict]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}, gloo"


def store(results: dict[str, dict]) -> None:
    """Writes results, figures and page, and publishes a page that is whole."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for name, module in SECTIONS.items():
        if name in results and hasattr(module, "draw"):
            module.draw(results[name]["data"], FIGURES)
    PAGE.write_text("\n".join(page(results)) + "\n")
    if results.keys() == SECTIONS.keys():
        shutil.copy(PAGE, HERE)
        for figure in FIGURES.glob("*.svg"):
            shutil.copy(figure, HERE / "figures")


def page(results: dict[str, dict]) -> list[str]:
    lines = [
        "# How well ttrace tells wrong programs from correct ones",
        "",
        "Made by `tools/evaluate`: real PyTorch processes over gloo, real traces. `tools/evaluate --help` says how to "
        "measure it again, whole or by section.",
        "",
    ]
    for name, module in SECTIONS.items():
        if name not in results:
            continue
        data = results[name]["data"]
        # The correct configurations are run once for both.
        extra = [results.get("false-alarms", {}).get("data", [])] if module is rules else []
        lines += [f"## {module.TITLE}", "", *module.render(data, *extra), ""]
        seconds, machine = results[name]["seconds"], results[name]["machine"]
        lines += [f"Measured by `tools/evaluate --only {name}` in {seconds} s: {machine}.", ""]
    return lines[:-1]
