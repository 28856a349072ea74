"""Runs rows, and says of each what came out.

A row's candidate runs without ttrace and with it: both must print the same bits. Its trace must be the same as the
reference's, by tolerances measured of the reference; that of the wrong twin must not be, and the bits must be others:
else equal bits would say nothing."""

import itertools
import json
import re
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu.commands import Commands, Ended, NotHere, OutOfTime
from gpu.rows import Alone, Program, Row, Watched

HERE = Path(__file__).resolve().parent
_NUMBER = r"(?:nan|-?inf|-?[\d.]+)"
_PRINTED = re.compile(rf"rank \d+ (?:step \d+ loss {_NUMBER} norm {_NUMBER}|digest [0-9a-f]{{16}})")


@dataclass
class Result:
    """`state`: ok; WRONG: ttrace does not do as it should; not here: this machine cannot run the program; no time."""

    name: str
    device: str
    state: str = "ok"
    bits: str = ""  # with recording and without: equal; of a program that does not repeat itself, so
    right: str = ""  # the verdict
    compared: int = 0
    not_seen: int = 0
    wrong: str = ""  # the verdict of the wrong twin
    sentence: str = ""  # what is said of it
    problem: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        counts = f" ({self.compared} compared" + (f", {self.not_seen} not seen)" if self.not_seen else ")")
        said = [f"{self.state:8} {self.name:24} {self.seconds:6.1f} s"]
        said += [f"  bits {self.bits}"] if self.bits else []
        said += [f"  {self.right}{counts if self.compared else ''}; wrong twin: {self.wrong}"] if self.right else []
        said += [f"\n         {self.problem}"] if self.problem else []
        return "".join(said)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Mismatch(Exception):
    """The text says what is not as it should be."""


@dataclass(frozen=True)
class Reference:
    trace: Path
    tolerance: Path


class Trial:
    def __init__(self, commands: Commands, work: Path, row_seconds: float):
        self._commands, self._work, self._row_seconds = commands, work, row_seconds
        self._references: dict[tuple[Program, str], Future[Reference]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def run(self, row: Row | Watched | Alone) -> Result:
        result, started = Result(row.name, self._commands.device), time.monotonic()
        try:
            if self._commands.device == "cpu" and row.needs:
                raise NotHere(f"no {row.needs} on a CPU")
            take = {Row: self._run_row, Watched: self._run_watched, Alone: self._run_alone}[type(row)]
            take(row, result, started + self._row_seconds)
        except NotHere as error:
            result.state, result.problem = "not here", str(error)
        except OutOfTime as error:
            result.state, result.problem = "no time", str(error)
        except Mismatch as error:
            result.state, result.problem = "WRONG", str(error)
        result.seconds = round(time.monotonic() - started, 1)
        return result

    def _run_row(self, row: Row, result: Result, until: float) -> None:
        candidate, wrong = row.candidate.on(self._commands.device), row.wrong.on(self._commands.device)
        plain = self._plain(candidate, until)
        reference = self._reference(row.reference.on(self._commands.device), row.iterations, until)
        trace, recorded = self._collect(row.name, candidate, row.iterations, until)
        result.bits = self._held(candidate, plain, recorded, until)
        report = self._check(reference, trace, until)
        result.right = report["verdict"]
        result.compared, result.not_seen = report["counts"]["compared"], report["counts"]["not_seen"]
        # What is hidden may leave too little that proves anything.
        if result.right not in (("same", "could-not-look") if row.hides else ("same",)):
            raise Mismatch(f"{result.right}, expected same: {_sentence(report)}")
        if bool(result.not_seen) != row.hides:
            raise Mismatch(f"{result.not_seen} tensors are not seen, expected {'some' if row.hides else 'none'}")
        trace, recorded = self._collect(f"{row.name}-wrong", wrong, row.iterations, until)
        report = self._check(reference, trace, until)
        result.wrong, result.sentence = report["verdict"], _sentence(report)
        if result.wrong != "different":
            raise Mismatch(f"the wrong twin is {result.wrong}, expected different")
        if recorded == plain:
            raise Mismatch("the wrong twin has the bits of the right one")
        if result.bits == "differ":
            raise Mismatch("recording changes bits")

    def _plain(self, program: Program, until: float) -> list[str]:
        """What it prints without ttrace. Raises NotHere."""
        ended = self._commands.run(self._commands.command_of(program), until)
        if ended.code != 0:
            raise NotHere(f"the program ends with {ended.code} without ttrace: {ended.last_words()}")
        return _bits(ended)

    def _held(self, program: Program, plain: list[str], recorded: list[str], until: float) -> str:
        if recorded == plain:
            return "equal"
        return "differ" if self._plain(program, until) == plain else "of its own in each run"

    def _collect(self, name: str, program: Program, iterations: str, until: float) -> tuple[Path, list[str]]:
        trace, command = self._work / name, self._commands.command_of(program)
        options = ["-o", trace, "--iterations", iterations]
        ended = self._commands.ttrace("collect", *options, "--", *command, until=until)
        if ended.code != 0:
            raise Mismatch(f"ttrace collect ends with {ended.code}: {ended.last_words()}")
        return trace, _bits(ended)

    def _reference(self, program: Program, iterations: str, until: float) -> Reference:
        """Of the first row that asks for it; the others wait."""
        with self._lock:
            is_mine = (program, iterations) not in self._references
            future = self._references.setdefault((program, iterations), Future())
        if is_mine:
            try:
                future.set_result(self._make_reference(f"reference-{next(self._numbers)}", program, iterations, until))
            except Exception as error:
                if isinstance(error, OutOfTime):  # another row may have more
                    with self._lock:
                        del self._references[program, iterations]
                future.set_exception(error)
        try:
            return future.result(timeout=max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise OutOfTime("its reference was not there in time") from None

    def _make_reference(self, name: str, program: Program, iterations: str, until: float) -> Reference:
        trace, _ = self._collect(name, program, iterations, until)
        tolerance = self._work / f"{name}.yaml"
        options = ["--reference", trace, "-o", tolerance, "-j", 2]
        command = self._commands.command_of(program)
        ended = self._commands.ttrace("estimate-tolerance", *options, "--", *command, until=until)
        if ended.code != 0:
            raise Mismatch(f"ttrace estimate-tolerance ends with {ended.code}: {ended.last_words()}")
        return Reference(trace, tolerance)

    def _check(self, reference: Reference, trace: Path, until: float) -> dict:
        sides = ["--reference", reference.trace, "--candidate", trace, "-t", reference.tolerance]
        ended = self._commands.ttrace("check", *sides, "--json", "-", until=until)
        if not ended.stdout.startswith("{"):
            raise Mismatch(f"ttrace check ends with {ended.code}: {ended.last_words()}")
        return json.loads(ended.stdout)

    def _run_watched(self, row: Watched, result: Result, until: float) -> None:
        right, wrong = row.right.on(self._commands.device), row.wrong.on(self._commands.device)
        plain = self._plain(right, until)
        result.right, checks, watched = self._watch(row.name, right, until)
        result.bits = self._held(right, plain, watched, until)
        result.compared = sum(check["compared"] for check in checks)
        if result.right != "same":
            raise Mismatch(f"a right job is {result.right}: {_said_of(checks)}")
        result.wrong, checks, watched = self._watch(f"{row.name}-wrong", wrong, until)
        result.sentence = _said_of(checks)
        if result.wrong != "different":
            raise Mismatch(f"a wrong job is {result.wrong}")
        if watched == plain:
            raise Mismatch("the wrong twin has the bits of the right one")
        if result.bits == "differ":
            raise Mismatch("watching changes bits")

    def _watch(self, name: str, program: Program, until: float) -> tuple[str, list[dict], list[str]]:
        """The verdict by the exit code, the checks, and what the ranks printed. A single iteration may go unchecked."""
        watched, options = self._work / name, ["--every", 5, "--budget", "99%"]
        command = self._commands.command_of(program)
        ended = self._commands.ttrace("watch", "-o", watched, *options, "--", *command, until=until)
        verdicts = {0: "same", 1: "different", 2: "could-not-look"}
        if ended.code not in verdicts:
            raise Mismatch(f"ttrace watch ends with {ended.code}: {ended.last_words()}")
        lines = (watched / "checks.jsonl").read_text().splitlines()
        return verdicts[ended.code], [json.loads(line) for line in lines], _bits(ended)

    def _run_alone(self, row: Alone, result: Result, until: float) -> None:
        command = [sys.executable, str(HERE / row.script), "--device", self._commands.device]
        for member, words, code in (("right", [], 0), ("wrong", ["--wrong"], 1)):
            ended = self._commands.run([*command, *words], until)
            said = (ended.stdout.splitlines() or [ended.last_words()])[0]
            setattr(result, member, {0: "same", 1: "different"}.get(ended.code, f"exit code {ended.code}"))
            result.sentence = said
            if ended.code != code or not ended.stdout:
                raise Mismatch(f"{' '.join([row.script, *words])} ends with {ended.code}: {said}")


def _bits(ended: Ended) -> list[str]:
    """What ranks print of loss, norm and parameters, in whatever order they do, and be it within each other's lines."""
    return sorted(_PRINTED.findall(ended.stdout))


def _sentence(report: dict) -> str:
    """Of what is wrong first, or of the first question."""
    first = next(iter([*filter(None, [report.get("first_wrong")]), *report["questions"]]), {})
    said = first.get("sentence") or first.get("message") or "no tensor is named"
    return said.splitlines()[0]


def _said_of(checks: list[dict]) -> str:
    """Of the first that is wrong, or else that could not look."""
    for verdict in ("different", "could-not-look"):
        for check in checks:
            if check["verdict"] == verdict:
                wrong = check["wrong"][0] if check.get("wrong") else {}
                said = f"{wrong['tensor']}: {wrong['reason']}" if wrong else check.get("problem", "")
                return f"iteration {check['iteration']}: {said}"
    return "no check says what"
