"""Runs a program and its twins as a user would who says nothing: a reference, measured tolerances, a check of each."""

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from freshness import commit
from sweeps import warm
from sweeps.runs import TTRACE

from .table import COLLECTION, KINDS, ROOT, Program

WORK = ROOT / "build" / "programs"
ROWS = Path(__file__).resolve().parent / "rows.json"  # what RESULTS.md is made of
SECONDS = 600  # which no command of a program takes but where something hangs
SAME, DIFFERENT, COULD_NOT_LOOK, NOT_RUN = "same", "different", "could-not-look", "not run"


@dataclass(frozen=True)
class Verdict:
    """Of a check."""

    verdict: str
    tensor: str = ""  # where it begins to differ, or what the first question is about: name and kind
    asked: list[str] = field(default_factory=list)  # what all questions are about
    sentence: str = ""  # the cause, or the question
    compared: int = 0
    proved: int = 0

    @staticmethod
    def of_report(report: dict) -> "Verdict":
        counts, cause, questions = report["counts"], report.get("root_cause"), report.get("questions") or []
        of = cause or (questions[0] if questions else None)
        return Verdict(
            verdict=report["verdict"],
            tensor=_tensor(of) if of else "",
            asked=[_tensor(question) for question in questions],
            sentence=_line((of.get("sentence") or of.get("message") or "") if of else ""),
            compared=counts["compared"],
            proved=sum(kind["proved"] for kind in report["proof"].values()),
        )


@dataclass(frozen=True)
class Row:
    """A program. The hinted verdicts are those after all of the hints; None: nothing was said."""

    commit: str
    seconds: float
    correct: Verdict
    wrong: Verdict
    hints: list[str] = field(default_factory=list)
    hinted_correct: Verdict | None = None
    hinted_wrong: Verdict | None = None

    def to_json(self) -> dict:
        return asdict(self)

    @staticmethod
    def from_json(row: dict) -> "Row":
        of = {key: Verdict(**row[key]) if row[key] else None for key in _VERDICTS}
        return Row(**{**row, **of})


_VERDICTS = ("correct", "wrong", "hinted_correct", "hinted_wrong")


class RunError(Exception):
    """A run of the program failed, or of ttrace; the text is its last words."""


def python_of(program: Program) -> Path:
    return ROOT / program.venv / "bin" / "python"


def run(program: Program) -> Row:
    """Row of the program, which is kept. Needs a warm server of its Python for its speed alone."""
    row = measured(program, python_of(program), WORK)
    _keep(program.name, row)
    return row


def measured(program: Program, python: Path, work: Path) -> Row:
    """Row of the program by that Python; traces and reports lie in a directory of its name in `work`."""
    started = time.monotonic()
    without_mistake = replace(program, name=program.correct_name, mistake="", mistake_name="", shows=())
    try:
        runs, correct = _correct(without_mistake, python, work)
        runs.collect("wrong", program.ranks, program.mistake_name)
        wrong = runs.check("wrong", [])
        hints, options, hinted_correct, hinted_wrong = [], [], None, None
        for say in (runs.what_its_author_knows, runs.what_annotate_drafts):
            if COULD_NOT_LOOK not in ((hinted_correct or correct).verdict, (hinted_wrong or wrong).verdict):
                break
            hint, more = say(options)
            if hint:
                hints.append(hint)
                options += more
                hinted_correct, hinted_wrong = (runs.check(twin, options) for twin in ("correct", "wrong"))
    except RunError as error:
        hints, hinted_correct, hinted_wrong = [], None, None
        correct = wrong = Verdict(NOT_RUN, sentence=str(error))
    seconds = round(time.monotonic() - started, 1)
    return Row(commit(), seconds, correct, wrong, hints, hinted_correct, hinted_wrong)


@functools.cache
def _correct(program: Program, python: Path, work: Path) -> tuple["Runs", Verdict]:
    """Its runs, which those of it with each mistake are added to, and its first verdict."""
    runs = Runs(program, work, python)
    runs.collect("reference", ranks=1)
    runs.estimate()
    runs.collect("correct", program.ranks)
    return runs, runs.check("correct", [])


def kept() -> dict[str, Row]:
    """Of the programs that have been run, here or where the page was made."""
    return {name: Row.from_json(row) for name, row in json.loads(ROWS.read_text()).items()} if ROWS.exists() else {}


def _keep(name: str, row: Row) -> None:
    """A row a line, in the order of names, so that two who run other programs can merge what they found."""
    rows = {each: of.to_json() for each, of in {**kept(), name: row}.items()}
    lines = [f"{json.dumps(each)}: {json.dumps(rows[each])}" for each in sorted(rows)]
    new = ROWS.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    new.replace(ROWS)


class Runs:
    """The directory in which a program is run, and what is run there."""

    def __init__(self, program: Program, work: Path = WORK, python: Path | None = None, is_new: bool = True):
        """Of a directory in `work`, which is emptied if `is_new`."""
        self._program, self._python = program, python or python_of(program)
        self._directory = work / program.name
        if is_new:
            subprocess.run(["rm", "-rf", self._directory], check=True)
            self._directory.mkdir(parents=True)

    def collect(self, trace: str, ranks: int, mistake: str = "") -> None:
        shutil.rmtree(self._directory / trace, ignore_errors=True)
        iterations = ["--iterations", self._program.iterations] if self._program.iterations else []
        iterations += ["--then", self._program.then] if self._program.then else []
        devices = 1 if trace == "reference" else self._program.devices
        words = ["-o", trace, *iterations, "--", *self._command(ranks)]
        self._run("collect", *words, mistake=mistake, devices=devices)

    def estimate(self) -> None:
        words = ["-o", "tolerance.yaml", "--reference", "reference", "-j", "1", "--", *self._command(1)]
        self._run("estimate-tolerance", *words)

    def check(self, twin: str, options: list[str]) -> Verdict:
        report = self._directory / f"{twin}.json"
        report.unlink(missing_ok=True)
        words = ["--reference", "reference", "--candidate", twin, "-t", "tolerance.yaml", "--json", report]
        said = self._run("check", *words, *options, codes=(0, 1, 2))
        if not report.exists():
            return Verdict(COULD_NOT_LOOK, sentence=_line(said.replace("ttrace: error: ", "")))
        return Verdict.of_report(json.loads(report.read_text()))

    def what_its_author_knows(self, _: list[str]) -> tuple[str, list[str]]:
        """To be read, and the options that say it; empty where there is nothing to say."""
        return self._program.hint, shlex.split(self._program.hint)

    def what_annotate_drafts(self, options: list[str]) -> tuple[str, list[str]]:
        """The same, of `ttrace annotate` on the correct program with what was said before."""
        draft = self._directory / "annotations.yaml"
        words = ["correct", "--reference", "reference", *options, "-o", draft]
        self._run("annotate", *words, codes=(0, 1, 2))
        return ("annotate", ["-a", str(draft)]) if draft.exists() else ("", [])

    def _command(self, ranks: int) -> list[str]:
        return warm.command(self._program.path, *self._program.arguments, ranks=ranks, python=self._python)

    def _run(self, *words: object, mistake: str = "", devices: int = 1, codes: tuple[int, ...] = (0,)) -> str:
        """What it says. Raises RunError."""
        environment = os.environ | {"MISTAKE": mistake, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        # job.py, before_torchvision.py, and the package that programs import which record themselves.
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (KINDS, COLLECTION, ROOT / "build" / "lib" / "python")))
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        command = [str(word) for word in (TTRACE, *words)]
        try:
            done = subprocess.run(
                command, cwd=self._directory, env=environment, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"{words[0]}: takes more than {SECONDS} s") from None
        (self._directory / "log.txt").open("a").write(f"$ {shlex.join(command)}\n{done.stdout}{done.stderr}\n")
        if done.returncode not in codes:
            raise RunError(f"{words[0]} of {words[2]}: {_line(_last_word(done.stderr))}")
        return done.stderr.strip() or done.stdout.strip()


def _last_word(stderr: str) -> str:
    """The last error that Python printed, which says more than ttrace does of a program that failed; else the last
    line."""
    lines = stderr.strip().splitlines() or ["no word"]
    return next(
        (line for line in reversed(lines) if re.match(r"(\[rank\d+\]: )?[\w.]*(Error|Exception): ", line)), lines[-1]
    )


def _tensor(finding: dict) -> str:
    return f"{finding['name']} {finding['kind']}"


def _line(text: str) -> str:
    """Without what is of this machine alone."""
    return re.sub(r"\s+", " ", text.replace(f"{ROOT}/", "")).strip()
