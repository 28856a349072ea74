import argparse
import subprocess
import sys
from contextlib import nullcontext
from fnmatch import fnmatch
from itertools import groupby

from freshness import commit
from sweeps import warm

from . import page, runs
from .table import ROOT, Program, programs


def main() -> int:
    options = _options()
    every = programs()
    named = [p for p in every if not options.names or any(fnmatch(p.name, name) for name in options.names)]
    if options.list:
        print("\n".join(f"{program.name:24} {program.package:24} {program.idiom}" for program in named))
        return 0
    if not named:
        print(f"programs: error: no program has the name {' or '.join(options.names)}; --list", file=sys.stderr)
        return 2
    if not options.page:
        _run([program for program in named if options.names or options.again or not _is_measured(program)], every)
    page.write(every)
    judged = page.judged(named, runs.kept())
    as_expected = sum(each.expected() for each in judged)
    print(f"{as_expected} of {len(judged)} programs are as they should be")
    if any(each.row.correct.verdict == runs.NOT_RUN for each in judged):
        return 2
    return 0 if as_expected == len(judged) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/programs",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs small programs of many packages and idioms under ttrace, with processes that stay warm: one\n"
        "process, then in parallel, correct and with one small mistake, and says what ttrace makes of them with\n"
        "nothing said, and after one hint. Packages are installed in .venv-programs, or a framework's environment,\n"
        "when first needed. Rows stay in tools/laboratory/programs/rows.json, and RESULTS.md, OUTSIDE.md and\n"
        "PUBLIC.md are made of them. What has been measured at this commit isn't run again, so that a run that was\n"
        "stopped goes on.",
        epilog="Exit code: 0 when every correct program is the same, or is after one hint, and every wrong one is\n"
        "different at the tensor where its mistake shows; 1 when not; 2 when something could not be run.\n\n"
        "Examples:\n"
        "  tools/programs                  what has not been measured at this commit\n"
        "  tools/programs moco 'buffers*'  programs of these names, measured or not\n"
        "  tools/programs --list",
    )
    add = parser.add_argument
    add("names", metavar="NAME", nargs="*", help="only programs of this name, which may be a glob")
    add("--again", action="store_true", help="also what has been measured at this commit")
    add("--list", action="store_true", help="list the programs, run nothing")
    add("--page", action="store_true", help="make the page alone, run nothing")
    return parser.parse_args()


def _run(chosen: list[Program], every: list[Program]) -> None:
    number = 0
    for venv, programs_of in groupby(sorted(chosen, key=lambda program: program.venv), lambda program: program.venv):
        subprocess.run(["tools/venv", venv, requirements(venv), ".venv"], cwd=ROOT, check=True)
        # A process that has imported JAX has threads, and is not to be forked.
        has_jax = venv == ".venv-jax"
        with nullcontext() if has_jax else warm.server(ROOT / venv / "bin" / "python"):
            for program in programs_of:
                number += 1
                row = runs.run(program)
                (judged,) = page.judged([program], {program.name: row})
                mark = " " if judged.expected() else "!"
                print(
                    f"{mark} {number}/{len(chosen)} {program.name}: correct {judged.correct}; wrong {judged.wrong}, "
                    f"{row.wrong.tensor}; {row.seconds} s",
                    flush=True,
                )
                page.write(every)


def requirements(venv: str) -> str:
    """What is installed in it. That of a framework's trials is theirs."""
    if venv == ".venv-programs":
        return "tools/laboratory/programs/requirements.txt"
    return f"tools/frameworks/{venv.removeprefix('.venv-')}/requirements.txt"


def _is_measured(program: Program) -> bool:
    row = runs.kept().get(program.name)
    return row is not None and row.commit == commit() and "changed" not in row.commit


if __name__ == "__main__":
    sys.exit(main())
