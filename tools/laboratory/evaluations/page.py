"""The evidence page. Nothing on it is typed by hand: `results.json` in the build directory keeps what was measured, and
the page is made from it, so that a section can be measured again alone. Each section and its figures are published
beside this file, in the page that is there."""

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch

import freshness

from . import (
    bug_errors,
    bugs,
    cost,
    damages,
    depth,
    false_alarms,
    framework_mutants,
    localization,
    mutants,
    rules,
    sensitivity,
    sketches,
    unknown_steps,
)
from .peers import BUILD

HERE = Path(__file__).resolve().parent
MEASURED = BUILD / "evaluations"
PAGE, RESULTS, FIGURES = MEASURED / "RESULTS.md", MEASURED / "results.json", MEASURED / "figures"

# In the order of the page. Each module has a TITLE, measure(bench), which returns what JSON can hold, and render(that),
# the lines of Markdown; those with figures have draw(that, directory).
SECTIONS = {
    "bugs": bugs,
    "damages": damages,
    "localization": localization,
    "false-alarms": false_alarms,
    "mutants": mutants,
    "framework-mutants": framework_mutants,
    "unknown-steps": unknown_steps,
    "sketches": sketches,
    "rules": rules,
    "depth": depth,
    "bug-errors": bug_errors,
    "sensitivity": sensitivity,
    "cost": cost,
}


def load() -> dict[str, dict]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def machine() -> str:
    return freshness.machine(f"torch {torch.__version__}", "gloo")


def store(results: dict[str, dict], names: Iterable[str]) -> None:
    """Writes results and page, and publishes these sections with their figures."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    sections = rendered(results)
    PAGE.write_text(page(sections))
    published = HERE / PAGE.name
    titles = {SECTIONS[name].TITLE for name in names}
    new = {title: text for title, text in sections.items() if title in titles}
    published.write_text(page({**sections_of(published.read_text()), **new}))
    for name in names:
        if hasattr(SECTIONS[name], "draw"):
            SECTIONS[name].draw(results[name]["data"], FIGURES)
            shutil.copy(FIGURES / f"{name.replace('-', '_')}.svg", HERE / "figures")


def rendered(results: dict[str, dict]) -> dict[str, str]:
    """The text of each section that was measured, by its title."""
    sections = {}
    for name, module in SECTIONS.items():
        if name not in results:
            continue
        data = results[name]["data"]
        # The correct configurations are run once for both.
        extra = [results.get("false-alarms", {}).get("data", [])] if module is rules else []
        seconds, machine, measured = (results[name][key] for key in ("seconds", "machine", "commit"))
        made = freshness.sentence(f"tools/evaluate --only {name}", seconds, [measured], machine)
        sections[module.TITLE] = "\n".join([*module.render(data, *extra), "", made])
    return sections


def sections_of(text: str) -> dict[str, str]:
    """What `page` was made from."""
    parts = re.split(r"^## (.*)\n\n", text, flags=re.MULTILINE)[1:]
    return {title: section.strip("\n") for title, section in zip(parts[::2], parts[1::2], strict=True)}


def page(sections: dict[str, str]) -> str:
    lines = [
        "# How well ttrace tells wrong programs from correct ones",
        "",
        "Made by `tools/evaluate`: real PyTorch processes over gloo, real traces. `tools/evaluate --help` says how to "
        "measure it again, whole or by section.",
    ]
    for title in [module.TITLE for module in SECTIONS.values() if module.TITLE in sections]:
        lines += ["", f"## {title}", "", sections[title]]
    return "\n".join(lines) + "\n"
