"""RESULTS.md: of how many wrong programs the cause is named. Made of the rows that are kept."""

import json
from collections import Counter
from dataclasses import asdict, dataclass

from freshness import machine, sentence
from programs.runs import COULD_NOT_LOOK, DIFFERENT, NOT_RUN, SAME

from .table import HERE, Wrong

PAGE = HERE / "RESULTS.md"
ROWS = HERE / "rows.json"
RIGHT, WRONG, NONE = "right", "wrong", "none"
_WHERE_ALONE = "region"  # says where the error is, and not why


@dataclass(frozen=True)
class Row:
    """What was said of a wrong program, and of its correct twin."""

    name: str
    commit: str
    correct: str  # verdict
    verdict: str
    tensor: str = ""  # name and kind of the first wrong one
    diagnosis: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class Judged:
    name: str
    correct: str
    found: str  # verdict
    tensor: str
    is_first: bool  # the tensor is where the mistake shows first
    cause: str  # RIGHT, WRONG, NONE

    def __str__(self) -> str:
        return f"{self.found}, {self.tensor}{'' if self.is_first else ' (another)'}, cause {self.cause}"


def judged(wrong: Wrong, row: Row) -> Judged:
    if row.diagnosis and wrong.is_named_by(row.sentence):
        cause = RIGHT
    else:
        cause = NONE if row.diagnosis in ("", _WHERE_ALONE) else WRONG
    return Judged(row.name, row.correct, row.verdict, row.tensor, wrong.shows_in(row.tensor), cause)


def kept() -> dict[str, Row]:
    return {name: Row(**row) for name, row in json.loads(ROWS.read_text()).items()} if ROWS.exists() else {}


def keep(row: Row) -> None:
    rows = {**kept(), row.name: row}
    lines = [f"{json.dumps(name)}: {json.dumps(asdict(rows[name]))}" for name in sorted(rows)]
    ROWS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def all_judged(programs: list[Wrong]) -> list[Judged]:
    """Those that have been run."""
    rows = kept()
    return [judged(wrong, rows[wrong.name]) for wrong in programs if wrong.name in rows]


def counts(every: list[Judged]) -> str:
    found = sum(each.found == DIFFERENT for each in every)
    first = sum(each.is_first for each in every)
    of = Counter(each.cause for each in every)
    return (
        f"{len(every)} wrong programs: {found} different, {first} first at the tensor where the mistake shows; "
        f"cause right of {of[RIGHT]}, wrong of {of[WRONG]}, none of {of[NONE]}"
    )


def write(programs: list[Wrong]) -> None:
    rows = kept()
    run = [wrong for wrong in programs if wrong.name in rows]
    every = all_judged(run)
    lines = [
        "# Causes of wrong programs",
        "",
        "Made by `tools/causes`: wrong programs, each beside the cause that a person would write down who has found",
        "its mistake. The list, [causes.txt](causes.txt), was made before ttrace was run on any of them; it says the",
        "rule by which they were chosen, and which words a cause must say to count as *right*. *wrong* is a cause that",
        "says something else; *none*, that nothing known explains the error, or only where it lies.",
        "",
        counts(every) + ".",
        "",
        "| program | correct twin | found | first tensor | cause | as a person would say it | as ttrace says it |",
        "|---|---|---|---|---|---|---|",
        *(_line(wrong, rows[wrong.name]) for wrong in run),
    ]
    if waiting := [wrong.name for wrong in programs if wrong.name not in rows]:
        lines += ["", f"Not run yet: {', '.join(waiting)}."]
    commits = sorted({rows[wrong.name].commit for wrong in run})
    lines += ["", sentence("tools/causes", None, commits, machine())] if run else []
    PAGE.write_text("\n".join(lines) + "\n")


def _line(wrong: Wrong, row: Row) -> str:
    each = judged(wrong, row)
    expected = {SAME: SAME, COULD_NOT_LOOK: COULD_NOT_LOOK, NOT_RUN: NOT_RUN}
    cells = [
        wrong.name,
        expected.get(each.correct, f"**{each.correct}**"),
        each.found if each.found == DIFFERENT else f"**{each.found}**",
        f"{_escaped(each.tensor)}{'' if each.is_first else ', another'}",
        each.cause if each.cause == RIGHT else f"**{each.cause}**",
        wrong.cause,
        _escaped(row.sentence),
    ]
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;").replace("|", "\\|")
