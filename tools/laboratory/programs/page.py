"""RESULTS.md: first verdicts. Made of the rows that are kept, so that a program can be run again alone."""

import platform
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from freshness import machine, sentence

from .runs import COULD_NOT_LOOK, DIFFERENT, NOT_RUN, SAME, Row, Verdict, kept
from .table import Program, is_named

PAGE = Path(__file__).resolve().parent / "RESULTS.md"
OUTSIDE_PAGE = PAGE.with_name("OUTSIDE.md")
PUBLIC_PAGE = PAGE.with_name("PUBLIC.md")
_FIRST = (
    "First verdicts on programs of many packages",
    "tools/programs",
    "small programs, each run by one process (the reference), then in parallel, correct\n"
    "and with one small mistake; tolerances are measured. *First* is the verdict with nothing said; *then* that\n"
    "after a hint: options that only an author knows, then the draft of `ttrace annotate` where it still could not\n"
    "look. The *right* tensor is where a wrong twin's mistake shows first, which the text of the program says.",
)
_OUTSIDE = (
    "Mistakes outside the first step, the first optimizer and the parameters",
    "tools/programs 'outside/*'",
    "what shows in the second\n"
    "or third step alone, in another model's optimizer, in buffers, averages and states, behind what begins at\n"
    "zero, in a resume, or without gradients. Each is recorded as `ttrace run` does it: one iteration whole, two more\n"
    "lightly, by one process (the reference), then in parallel, correct and with the mistake, with nothing said;\n"
    "tolerances are measured. The *right* tensor is where the mistake shows first, which was written down in\n"
    "[outside.txt](outside.txt) before any was run.",
)

_PUBLIC = (
    "Silent bugs that others reported",
    "tools/programs 'public/*'",
    "bugs of released packages, each in the package itself,\n"
    "as its report says; where it is mended, by the old code. The right program and the wrong one are held against\n"
    "the right one, run by one process, with measured tolerances and nothing said. By which rule they were chosen,\n"
    "where each shows first and which words its cause must say was written down in [public.txt](public.txt) before\n"
    "any was run, but for five tensors that it names, corrected behind a first verdict. *cause*: *right* where it\n"
    "says them, *none* where nothing known explains the error, else, or where it is right by chance alone, what a\n"
    "person who read both called it, a *half* or *wrong*. At first, at a1265fd4, two right programs were *different*\n"
    "(divide_factor, shard_map_gradient) and one could not be recorded (decay_offset): the kinds are mended since.",
)


@dataclass(frozen=True)
class Judged:
    """A program, and whether the answers on it are those that a user needs."""

    program: Program
    row: Row

    @property
    def correct(self) -> str:
        """How the correct twin fared, for the counts."""
        first, then = self.row.correct, self.row.hinted_correct
        if first.verdict != COULD_NOT_LOOK:
            return first.verdict
        if self._program_asks():
            return _AS_IT_MUST
        return f"{COULD_NOT_LOOK}, then {then.verdict}{self._after()}" if then else COULD_NOT_LOOK

    @property
    def wrong(self) -> str:
        """How the wrong twin fared."""
        first, then = self.row.wrong, self.row.hinted_wrong
        if first.verdict == DIFFERENT:
            return f"{DIFFERENT} at {self._which(first)} tensor"
        if first.verdict != COULD_NOT_LOOK:
            return first.verdict
        if any(map(self.program.shows_in, first.asked)):
            return f"{COULD_NOT_LOOK}, naming the right tensor"
        if then and then.verdict == DIFFERENT:
            return f"{COULD_NOT_LOOK}, then {DIFFERENT} at {self._which(then)} tensor"
        return f"{COULD_NOT_LOOK}, then {then.verdict}{self._after()}" if then else COULD_NOT_LOOK

    def expected(self) -> bool:
        return self.correct in _RIGHT_OF_CORRECT and self.wrong in _RIGHT_OF_WRONG

    def cause(self) -> str:
        """Of a program with `words`."""
        said = self.row.wrong if self.row.wrong.verdict == DIFFERENT else self.row.hinted_wrong or self.row.wrong
        if said.verdict != DIFFERENT:
            return ""
        if not said.sentence or "nothing known explains" in said.sentence:
            return "none"
        return self.program.read or ("right" if is_named(self.program.words, said.sentence) else "half or wrong")

    def _after(self) -> str:
        return f" after {len(self.row.hints)} hints" if len(self.row.hints) > 1 else ""

    def _program_asks(self) -> bool:
        """What can't be compared is asked about, with what would make it comparable."""
        return bool(self.program.asks) and self.program.asks in self.row.correct.sentence

    def _which(self, verdict: Verdict) -> str:
        return "the right" if self.program.shows_in(verdict.tensor) else "another"


_AS_IT_MUST = f"{COULD_NOT_LOOK}, with what makes it comparable"
_RIGHT_OF_CORRECT = (
    SAME,
    _AS_IT_MUST,
    f"{COULD_NOT_LOOK}, then {SAME}",
    f"{COULD_NOT_LOOK}, then {SAME} after 2 hints",
)
_RIGHT_OF_WRONG = (
    f"{DIFFERENT} at the right tensor",
    f"{COULD_NOT_LOOK}, naming the right tensor",
    f"{COULD_NOT_LOOK}, then {DIFFERENT} at the right tensor",
)


def judged(programs: list[Program], rows: dict[str, Row]) -> list[Judged]:
    """Those that have been run."""
    return [Judged(program, rows[program.name]) for program in programs if program.name in rows]


def write(programs: list[Program]) -> None:
    rows = kept()
    outside = [program for program in programs if program.is_outside]
    public = [program for program in programs if program.is_public]
    PAGE.write_text(page([program for program in programs if not (program.is_outside or program.is_public)], rows))
    OUTSIDE_PAGE.write_text(page(outside, rows, _OUTSIDE))
    PUBLIC_PAGE.write_text(page(public, rows, _PUBLIC))


def page(programs: list[Program], rows: dict[str, Row], about: tuple[str, str, str] = _FIRST) -> str:
    title, command, what = about
    every = judged(programs, rows)
    looked_at = [each for each in every if each.row.correct.verdict != NOT_RUN]
    failed = [each for each in every if each.row.correct.verdict == NOT_RUN]
    waiting = [program.name for program in programs if program.name not in rows]
    packages = {program.package for program in programs}
    lines = [
        f"# {title}",
        "",
        *f"Made by `{command}`: {what}".split("\n"),
        "",
        f"{len(programs)} programs and idioms, packages: {len(packages)}; {len(looked_at)} were run.",
        "",
        *_counts("Correct programs", [each.correct for each in looked_at]),
        *_counts("Wrong twins", [each.wrong for each in looked_at]),
        *(_counts("Causes", [each.cause() or "not found" for each in looked_at]) if about is _PUBLIC else []),
        "## Programs",
        "",
        *(_REPORTED if about is _PUBLIC else _RUN),
        *map(_reported if about is _PUBLIC else _line, looked_at),
    ]
    if others := [each for each in looked_at if not each.expected()]:
        lines += ["", "## Not as it should be", "", *(text for each in others for text in _remarks(each))]
    lines += ["", "## What the wrong twins do", ""]
    for each in looked_at:
        said = each.row.hinted_wrong or each.row.wrong
        lines.append(f"- {each.program.name}: {_escaped(each.program.mistake)}: {_escaped(said.sentence) or 'no word'}")
    if failed:
        lines += ["", "## Could not be run", ""]
        lines += [f"- {each.program.name}: {_escaped(each.row.correct.sentence)}" for each in failed]
    if waiting:
        lines += ["", f"Not run yet: {', '.join(waiting)}."]
    if every:
        commits = sorted({each.row.commit for each in every})
        seconds = sum(each.row.seconds for each in every)
        of = machine(f"Python {platform.python_version()}")
        lines += ["", sentence(command, seconds, commits, of)]
    return "\n".join(lines) + "\n"


_RUN = (
    "| program | package | parallel | correct: first | then | wrong: first | then | its tensor | proved | s |",
    "|---|---|---|---|---|---|---|---|--:|--:|",
)
_REPORTED = (
    "| report | program | package | parallel | right: first | then | bug: first | then | its tensor | cause |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def _counts(title: str, outcomes: list[str]) -> list[str]:
    counts = Counter(outcomes)
    return [f"{title}:", "", *(f"- {counts[outcome]} {outcome}" for outcome in sorted(counts)), ""]


def _line(each: Judged) -> str:
    proved = f"{each.row.correct.proved} of {each.row.correct.compared}"
    return _row([each.program.name, *_of(each), proved, f"{each.row.seconds:.0f}"])


def _reported(each: Judged) -> str:
    return _row([each.program.report, each.program.name.removeprefix("public/"), *_of(each), each.cause()])


def _of(each: Judged) -> list[str]:
    """What both tables say of a program."""
    program, row = each.program, each.row
    tensor = (row.wrong if row.wrong.verdict == DIFFERENT or not row.hinted_wrong else row.hinted_wrong).tensor
    right = "" if each.wrong in _RIGHT_OF_WRONG else ", not the right one"
    return [
        program.package,
        program.parallel,
        _verdict(row.correct, SAME),
        _then(row.hinted_correct, ", ".join(row.hints), SAME),
        _verdict(row.wrong, DIFFERENT),
        _then(row.hinted_wrong, "", DIFFERENT),
        f"{_escaped(tensor)}{right}" if tensor else "",
    ]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _verdict(verdict: Verdict, expected: str) -> str:
    is_false = verdict.verdict not in (expected, COULD_NOT_LOOK)
    return f"**{verdict.verdict}**" if is_false else verdict.verdict


def _then(verdict: Verdict | None, hint: str, expected: str) -> str:
    if verdict is None:
        return ""
    return f"`{hint}`: {_verdict(verdict, expected)}" if hint else _verdict(verdict, expected)


def _remarks(each: Judged) -> list[str]:
    row, lines = each.row, []
    if each.correct not in _RIGHT_OF_CORRECT:
        said = row.hinted_correct or row.correct
        lines.append(f"- {each.program.name}, correct: {each.correct}: {_escaped(said.sentence)}")
    if each.wrong not in _RIGHT_OF_WRONG:
        shows = ", ".join(pattern.replace("[[]", "[") for pattern in each.program.shows)
        lines.append(f"- {each.program.name}, wrong ({_escaped(shows)}): {each.wrong}: {_escaped(row.wrong.sentence)}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;").replace("|", "\\|")
