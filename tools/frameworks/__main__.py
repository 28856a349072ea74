"""Trains with real frameworks, unchanged, under ttrace, and says what it makes of them."""

import argparse
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "laboratory"))

import page
from trials import Row, Trial, TrialError, all_trials

# What tools/test runs: trials, and globs for the candidates in them.
QUICK = {"megatron/gpt": ["tp2-sp"], "transformers/llama": ["tp2"]}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/frameworks/run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Trains with real frameworks, unchanged, under ttrace, and says what it makes of them.\n"
        "A framework is a folder beside this program: its pinned packages (requirements.txt, installed in\n"
        ".venv-FOLDER when first needed), programs as its users write them, and files for `ttrace run`.\n"
        "tools/laboratory/found has programs with a bug of a released package. What was run last of each trial\n"
        "stays in build/frameworks, and RESULTS.md is made of that.",
        epilog="Exit code: 0 when every correct program is the same and every wrong one different; 1 when not; 2 when\n"
        "something could not be run.\n\n"
        "Examples:\n"
        "  tools/frameworks/run                         everything\n"
        "  tools/frameworks/run --quick --json rows.json\n"
        "  tools/frameworks/run --only megatron         trials whose names have this text in them\n"
        "  tools/frameworks/run --only pytorch/fsdp2 --only found\n"
        "  tools/frameworks/run --list",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="two rows")
    add(
        "--only",
        metavar="TEXT",
        action="append",
        default=[],
        help="only trials with TEXT in their names; may be repeated",
    )
    add("--json", metavar="FILE", type=Path, help="write the rows there")
    add("--list", action="store_true", help="list the trials, run nothing")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    trials = [trial for trial in all_trials() if not options.only or any(text in trial.name for text in options.only)]
    if options.quick:
        trials = [trial for trial in trials if trial.name in QUICK]
    if options.list:
        print("\n".join(trial.name for trial in trials))
        return 0
    if not trials:
        print(f"frameworks: error: no trial has {' or '.join(options.only)} in its name; --list", file=sys.stderr)
        return 2
    rows, problems = [], 0
    for trial in trials:
        print(f"frameworks: {trial.name}", file=sys.stderr, flush=True)
        try:
            found = trial.run(QUICK[trial.name] if options.quick else ["*"], refresh=True)
        except TrialError as error:
            print(f"frameworks: error: {error}", file=sys.stderr)
            problems += 1
            continue
        rows += found
        if not options.quick:
            page.write()
        for row in found:
            print(_summary(trial, row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(_document(rows), indent=1) + "\n")
    as_expected = sum(row.expected() for row in rows)
    print(f"{as_expected} of {len(rows)} rows are as they should be")
    return 2 if problems else 0 if as_expected == len(rows) else 1


def _document(rows: list[Row]) -> dict:
    correct = [row for row in rows if row.correct]
    return {
        "rows": [row.to_json() for row in rows],
        "correct": len(correct),
        "same": sum(row.verdict == "same" for row in correct),
    }


def _summary(trial: Trial, row: Row) -> str:
    counts = f"{row.compared} compared: {row.passed} pass, {row.fail} fail, {row.untrusted} untrusted; "
    counts += f"{row.missing} missing, {row.not_seen} not seen, {row.waived} waived"
    remark = "" if row.expected() else f"\n  not as expected: {row.sentence}"
    return f"{trial.path.parent.name} {row.strategy}: {row.verdict}; {counts}{remark}"


if __name__ == "__main__":
    sys.exit(main())
