import argparse
import json
import shlex
import sys
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from freshness import commit
from programs.runs import COULD_NOT_LOOK, NOT_RUN, RunError, Runs
from sweeps import warm

from . import page
from .page import Row
from .table import Wrong, wrong_programs

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv" / "bin" / "python"
WORK = ROOT / "build" / "causes"


def main() -> int:
    options = _options()
    every = wrong_programs()
    named = [each for each in every if not options.names or any(fnmatch(each.name, name) for name in options.names)]
    if not named:
        print(f"causes: error: no program has the name {' or '.join(options.names)}", file=sys.stderr)
        return 2
    if not options.page:
        with warm.server(PYTHON):
            for number, wrong in enumerate(named, 1):
                row = _row_of(wrong, options.check)
                page.keep(row)
                print(f"{number}/{len(named)} {wrong.name}: {page.judged(wrong, row)}: {row.sentence}", flush=True)
    page.write(every)
    judged = page.all_judged(named)
    print(page.counts(judged))
    return 2 if any(each.found == NOT_RUN for each in judged) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/causes",
        description="Runs wrong programs whose causes were written down beforehand, and counts how many of them a "
        "check finds, at the tensor where the mistake shows first, and of how many it names the cause. "
        "Writes tools/laboratory/causes/RESULTS.md.",
    )
    add = parser.add_argument
    add("names", metavar="NAME", nargs="*", help="only programs of this name, which may be a glob")
    add("--check", action="store_true", help="check what an earlier run has collected once more")
    add("--page", action="store_true", help="make the page alone, run nothing")
    return parser.parse_args()


def _row_of(wrong: Wrong, check_alone: bool) -> Row:
    try:
        home, correct = _collected(wrong, check_alone)
        report = _check(home, "wrong", wrong, [])
        if report["verdict"] == COULD_NOT_LOOK and wrong.program.hint:
            report = _check(home, "wrong", wrong, shlex.split(wrong.program.hint))
    except RunError as error:
        return Row(wrong.name, commit(), NOT_RUN, NOT_RUN, sentence=str(error))
    root = report.get("root_cause") or {}
    return Row(
        wrong.name,
        commit(),
        correct,
        report["verdict"],
        f"{root['name']} {root['kind']}" if root else "",
        root.get("diagnosis") or "",
        " ".join((root.get("sentence") or "").replace(f"{ROOT}/", "").split()),
    )


def _collected(wrong: Wrong, as_it_is: bool) -> tuple[Path, str]:
    """The directory with the reference, its tolerances and the wrong run, and the verdict on the correct one."""
    program = wrong.program
    stem = program.correct_name if program.is_outside else "-".join([program.path.stem, *program.arguments])
    correct_program = replace(program, name=stem, mistake_name="")
    home = WORK / stem
    if not (home / "tolerance.yaml").exists() or not (as_it_is or home in _made):
        runs = Runs(correct_program, WORK, PYTHON)
        runs.collect("reference", ranks=1)
        runs.estimate()
        runs.collect("correct", program.ranks)
    _made.add(home)
    trace = home / f"wrong-{program.mistake_name}"
    if not (as_it_is and trace.exists()):
        Runs(correct_program, WORK, PYTHON, is_new=False).collect(trace.name, program.ranks, program.mistake_name)
    report = _check(home, "correct", wrong, [])
    if report["verdict"] == COULD_NOT_LOOK and program.hint:
        report = _check(home, "correct", wrong, shlex.split(program.hint))
    return home, report["verdict"]


_made: set[Path] = set()


def _check(home: Path, twin: str, wrong: Wrong, options: list[str]) -> dict:
    trace = "correct" if twin == "correct" else f"wrong-{wrong.program.mistake_name}"
    runs = Runs(replace(wrong.program, name=home.relative_to(WORK).as_posix()), WORK, PYTHON, is_new=False)
    verdict = runs.check(trace, options)
    report = home / f"{trace}.json"
    return json.loads(report.read_text()) if report.exists() else {"verdict": verdict.verdict}


if __name__ == "__main__":
    sys.exit(main())
