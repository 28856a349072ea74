"""RESULTS.md: which releases are run. Made of the rows that are kept, so that a release can be run again alone."""

import platform
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from freshness import machine, sentence
from programs.page import Judged
from programs.runs import DIFFERENT, NOT_RUN, SAME

from .measure import Result, kept
from .table import Release

PAGE = Path(__file__).resolve().parent / "RESULTS.md"
COMMAND = "tools/versions"
_TEXT = """\
Made by `tools/versions`: each release in an environment of its own, with builds of PyTorch for the CPU alone; small
programs of the package, each run by one process (the reference), then in parallel, correct and with one small mistake,
with nothing said; tolerances are measured. A wrong twin counts where it is *different* at the tensor where its mistake
shows first. *tests* are files of `tests/collect`, run by that PyTorch. What the releases are is in
[releases.yaml](releases.yaml)."""


@dataclass(frozen=True)
class Line:
    """A release that was run."""

    release: Release
    result: Result

    def judged(self) -> list[Judged]:
        """Its programs that have been run, also those that failed."""
        rows = self.result.programs
        return [Judged(program, rows[program.name]) for program in self.release.programs if program.name in rows]

    def ran(self) -> list[Judged]:
        return [each for each in self.judged() if each.row.correct.verdict != NOT_RUN]

    def same(self) -> int:
        return sum(each.correct == SAME for each in self.ran())

    def different(self) -> int:
        return sum(each.wrong == f"{DIFFERENT} at the right tensor" for each in self.ran())

    def tests(self) -> Counter:
        return sum((Counter(counts) for counts in self.result.tests.values()), Counter())

    def expected(self) -> bool:
        return (
            not self.result.refused
            and self.result.has(self.release)
            and self.same() == self.different() == len(self.judged())
            and set(self.tests()) <= {"passed", "skipped"}
        )


def lines_of(releases: list[Release], results: dict[str, Result]) -> list[Line]:
    return [Line(release, results[release.name]) for release in releases if release.name in results]


def write(releases: list[Release]) -> None:
    PAGE.write_text(page(releases, kept()))


def page(releases: list[Release], results: dict[str, Result]) -> str:
    every = lines_of(releases, results)
    had = [line for line in every if not line.result.refused]
    refused = [line for line in every if line.result.refused]
    waiting = [release.name for release in releases if release.name not in results]
    same, different = sum(line.same() for line in had), sum(line.different() for line in had)
    ran = sum(len(line.ran()) for line in had)
    text = [
        "# Versions",
        "",
        _TEXT,
        "",
        f"{len(had)} of {len(releases)} releases were run: {same} of {ran} correct programs are *same*, {different} of "
        f"{ran} wrong twins *different* at the right tensor.",
        "",
        "| package | release | torch | Python | correct: same | wrong: different | tests | s | commit |",
        "|---|---|---|---|--:|--:|---|--:|---|",
        *map(_row, had),
    ]
    if notes := [note for line in had for note in _notes(line)]:
        text += ["", "## Not as it should be", "", *notes]
    if refused:
        text += ["", "## Could not be had here", ""]
        text += [f"- {_name(line)}: {_escaped(line.result.refused)}" for line in refused]
    if waiting:
        text += ["", f"Not run yet: {', '.join(waiting)}."]
    if every:
        commits = sorted({line.result.commit for line in every})
        seconds = sum(line.result.seconds for line in every)
        text += ["", sentence(COMMAND, seconds, commits, machine(f"Python {platform.python_version()}"))]
    return "\n".join(text) + "\n"


def _row(line: Line) -> str:
    result, count = line.result, len(line.ran())
    tests = ", ".join(f"{number} {outcome}" for outcome, number in line.tests().items())
    cells = [
        line.release.package,
        line.release.version,
        result.torch,
        result.python,
        f"{line.same()} of {count}",
        f"{line.different()} of {count}",
        tests,
        f"{result.seconds:.0f}",
        result.commit,
    ]
    return "| " + " | ".join(cells) + " |"


def _notes(line: Line) -> list[str]:
    name, notes = _name(line), []
    for each in line.judged():
        if each.row.correct.verdict == NOT_RUN:
            notes.append(f"- {name}, {each.program.name}: could not be run: {_escaped(each.row.correct.sentence)}")
            continue
        if each.correct != SAME:
            said = (each.row.hinted_correct or each.row.correct).sentence
            notes.append(f"- {name}, {each.program.name}, correct: {each.correct}: {_escaped(said)}")
        if each.wrong != f"{DIFFERENT} at the right tensor":
            said = each.row.wrong
            at = f" ({_escaped(said.tensor)})" if said.tensor else ""
            notes.append(f"- {name}, {each.program.name}, wrong: {each.wrong}{at}: {_escaped(said.sentence)}")
    for file, counts in line.result.tests.items():
        if bad := {outcome: count for outcome, count in counts.items() if outcome not in ("passed", "skipped")}:
            notes.append(f"- {name}, {file}: {', '.join(f'{count} {outcome}' for outcome, count in bad.items())}")
    return notes


def _name(line: Line) -> str:
    return f"{line.release.package} {line.release.version}"


def _escaped(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;").replace("|", "\\|")
