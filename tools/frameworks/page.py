"""RESULTS.md: what ttrace makes of real frameworks. Nothing on it is typed by hand: what was run last of each trial is
kept in the build directory, and beside the page, which is made of that, so that a trial can be run again alone."""

import json
import platform
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from freshness import machine, sentence
from trials import PUBLISHED, Result, Row, all_trials

PAGE = Path(__file__).resolve().parent / "RESULTS.md"
_COLUMNS = ("framework", "strategy", "verdict")
_COUNTS = ("compared", "pass", "fail", "missing", "not seen", "untrusted", "waived", "YAML lines")


def write() -> None:
    """Of the trials that have been run."""
    latest = {trial: result for trial in all_trials() if (result := trial.latest())}
    rows = [row for result in latest.values() for row in result.rows]
    found = [row for trial, result in latest.items() if trial.is_found() for row in result.rows]
    not_run = [trial.name for trial in all_trials() if trial not in latest]
    results = {trial.name: result for trial, result in latest.items()}
    PAGE.write_text("\n".join([*_page(rows, found, not_run), "", *_measured(results)]) + "\n")
    PUBLISHED.write_text(_published(results))


def _published(results: dict[str, Result]) -> str:
    """A row a line."""
    trials = []
    for name, result in results.items():
        rows = ",\n".join(json.dumps(row.to_json()) for row in result.rows)
        head = json.dumps({"commit": result.commit, "seconds": result.seconds})
        trials.append(f'{json.dumps(name)}: {head[:-1]}, "rows": [\n{rows}\n]}}')
    return "{\n" + ",\n".join(trials) + "\n}\n"


def _measured(results: dict[str, Result]) -> list[str]:
    """When, a framework a line."""
    lines = ["## Measured", ""]
    for framework, names in groupby(results, lambda name: name.split("/")[0]):
        of_framework = [results[name] for name in names]
        seconds = [result.seconds for result in of_framework]
        commits = sorted({result.commit for result in of_framework})
        said = sentence(
            f"tools/frameworks/run --only {framework}/",
            None if None in seconds else sum(seconds),
            commits,
            machine(f"Python {platform.python_version()}"),
        )
        lines += [said, ""]
    return lines[:-1]


def _page(rows: list[Row], found: list[Row], not_run: list[str]) -> list[str]:
    """`found`: those of `rows` that are of bugs of released packages."""
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
    sections = {
        "Bugs found in released packages": [row for row in wrong if row in found],
        "Programs with a mistake put in": [row for row in wrong if row not in found],
    }
    for title, of_section in sections.items():
        if of_section:
            lines += ["", f"## {title}", "", *_table(of_section), ""]
            lines += [f"- {row.strategy}: {_escaped(row.sentence)}" for row in of_section]
    if not_run:
        lines += ["", f"Not run yet: {', '.join(not_run)}."]
    return lines


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
