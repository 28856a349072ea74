"""RESULTS.md: what ttrace makes of real frameworks. Nothing on it is typed by hand: what was run last of each trial is
kept in the build directory, and the page is made of that, so that a trial can be run again alone."""

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from trials import Row, all_trials

PAGE = Path(__file__).resolve().parent / "RESULTS.md"
_COLUMNS = ("framework", "strategy", "verdict")
_COUNTS = ("compared", "pass", "fail", "missing", "not seen", "untrusted", "waived", "YAML lines")


def write() -> None:
    """Of the trials that have been run."""
    latest = {trial.name: trial.latest() for trial in all_trials()}
    rows = [row for found in latest.values() for row in found or ()]
    PAGE.write_text("\n".join(_page(rows, [name for name, found in latest.items() if found is None])) + "\n")


def _page(rows: list[Row], not_run: list[str]) -> list[str]:
    correct, wrong = [row for row in rows if row.correct], [row for row in rows if not row.correct]
    same = sum(row.verdict == "same" for row in correct)
    lines = [
        "# What ttrace makes of real frameworks",
        "",
        "Made by `tools/frameworks/run`: released packages, unchanged, real processes over gloo on CPU. A program is",
        "run by one process (the reference), then in parallel; `ttrace run` collects, estimates tolerances and checks.",
        "*YAML lines* are annotations beyond the presets, *said* is what had to be said of axes and parameters.",
        "",
        f"**{same} of {len(correct)} correct programs are *same*;"
        f" {sum(row.verdict == 'different' for row in wrong)} of {len(wrong)} wrong ones are *different*.**",
        "",
        "## Correct programs",
        "",
        *_table(correct),
    ]
    if others := [row for row in correct if not row.expected()]:
        lines += ["", "What ttrace says of those that are not *same*:", ""]
        lines += [f"- {row.strategy}: {_escaped(row.sentence)}" for row in others]
    if wrong:
        lines += ["", "## Bugs found in released packages", "", *_table(wrong), ""]
        lines += [f"- {row.strategy}: {_escaped(row.sentence)}" for row in wrong]
    if not_run:
        lines += ["", f"Not run yet: {', '.join(not_run)}."]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return [*lines, "", f"{machine}."]


def _table(rows: Iterable[Row]) -> list[str]:
    header = "| " + " | ".join([*_COLUMNS, *_COUNTS, "said"]) + " |"
    return [header, "|---" * len(_COLUMNS) + "|--:" * len(_COUNTS) + "|---|", *(_line(row) for row in rows)]


def _line(row: Row) -> str:
    verdict = row.verdict if row.expected() else f"**{row.verdict}**"
    counts = (row.compared, row.passed, row.fail, row.missing, row.not_seen, row.untrusted, row.waived)
    cells = [row.framework, row.strategy, verdict, *counts, row.annotation_lines, row.options and f"`{row.options}`"]
    return "| " + " | ".join(map(str, cells)) + " |"


def _escaped(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")
