import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from freshness import commit, machine, sentence
from sweeps import launch, warm
from sweeps.runs import TTRACE

from .table import HERE, ROOT, Hunt, hunts

TABLE = HERE / "table.txt"
WORK = ROOT / "build" / "hunt"
RESULTS = HERE / "RESULTS.md"


def description(hunt: Hunt) -> dict:
    """For `ttrace run`. Its commands are run by the warm server."""
    program = [sys.executable, warm.__file__]
    told = [str(ROOT / hunt.program), *hunt.arguments.split()]

    def candidate(ranks: int, arguments: str) -> dict:
        started = [*program, launch.__file__, str(ranks)] if ranks > 1 else program
        said = {"name": Hunt.candidate_name(ranks, arguments), "command": [*started, *told, *arguments.split()]}
        return said | ({"axes": f"tp={ranks}"} if ranks > 1 else {})

    return {
        "reference": {"command": [*program, *told], "inputs": [str(hunt.program.parent)]},
        "iterations": hunt.iterations,
        "timeout": "10m",
        "localize": False,
        "candidates": [candidate(*pair) for pair in hunt.candidates],
    }


def run(hunt: Hunt) -> list[dict]:
    """Rows of the results, kept in the build directory."""
    work = WORK / hunt.directory
    work.mkdir(parents=True, exist_ok=True)
    file, report = work / "ttrace.yaml", work / "report.json"
    file.write_text(yaml.safe_dump(description(hunt)))
    report.unlink(missing_ok=True)
    command = [TTRACE, "run", file, "--work", work, "--refresh", "--json", report]
    started = time.monotonic()
    with open(work / "log.txt", "w") as log:
        result = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False)
    if not report.exists():
        raise RuntimeError(f"{hunt.name}: ttrace run ended with exit code {result.returncode}; {work / 'log.txt'}")
    found = json.loads(report.read_text())
    seconds = round(time.monotonic() - started, 1)
    if not found["candidates"]:
        raise RuntimeError(f"{hunt.name}: {found['problem'] or found['sentence']}")
    rows = [row(hunt, candidate, seconds) for candidate in found["candidates"]]
    (work / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def row(hunt: Hunt, candidate: dict, seconds: float) -> dict:
    report = candidate["report"] or {}
    cause = report.get("root_cause")
    return {
        "commit": commit(),
        "hunt": hunt.name,
        "candidate": candidate["name"],
        "verdict": candidate["verdict"],
        "compared": report.get("counts", {}).get("compared", 0),
        "fail": report.get("counts", {}).get("fail", 0),
        "said": [candidate["problem"]] if candidate["problem"] else [_sentence(cause)] if cause else [],
        "seconds": seconds,
    }


def _sentence(cause: dict) -> str:
    return re.sub(r"\s+", " ", (cause.get("sentence") or cause["message"]).replace(f"{ROOT}/", ""))


def results(all_hunts: list[Hunt]) -> str:
    """Of what was run last of each hunt."""
    kept = {hunt.name: WORK / hunt.directory / "rows.json" for hunt in all_hunts}
    rows = [row for file in kept.values() if file.exists() for row in json.loads(file.read_text())]
    missing = [name for name, file in kept.items() if not file.exists()]
    seconds = {row["hunt"]: row["seconds"] for row in rows}
    same = sum(row["verdict"] == "same" for row in rows)
    different = [row for row in rows if row["verdict"] == "different"]
    lines = [
        "# What was hunted",
        "",
        "Made by `tools/hunt`: each line of [table.txt](table.txt) is run by one process, then as its candidates.",
        "[What came of it](../found/README.md).",
        "",
        f"{len(rows)} pairs: {same} same, {len(different)} different, {len(rows) - same - len(different)} unseen;",
        f"{sum(row['compared'] for row in rows):,} tensors compared.",
        "",
        "| program | candidate | verdict | compared | fail |",
        "|---|---|---|--:|--:|",
        *(
            f"| {row['hunt']} | {row['candidate']} | {row['verdict']} | {row['compared']} | {row['fail']} |"
            for row in rows
        ),
        "",
        "## What differs",
        "",
        *(f"- {row['hunt']}, {row['candidate']}: {text}" for row in rows for text in row["said"]),
        *(["", f"Not run yet: {'; '.join(missing)}."] if missing else []),
        "",
        sentence("tools/hunt", sum(seconds.values()), sorted({row["commit"] for row in rows}), machine()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/hunt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Looks for silent bugs in released packages. A line of the table names a program, iterations to\n"
        "record, arguments that reference and candidates share, ranks, and arguments of the candidates alone.\n"
        "`ttrace run` collects, estimates tolerances and checks, with processes that stay warm. What was run last\n"
        "of each line stays in build/hunt, and tools/laboratory/hunting/RESULTS.md is made of that.",
        epilog="Exit code: 0 when everything is the same, 1 when something differs, 2 when something could not be\n"
        "looked at.\n\n"
        "Examples:\n"
        "  tools/hunt\n"
        "  tools/hunt --only AdamW -j 4\n"
        "  tools/hunt --table mine.txt",
    )
    add = parser.add_argument
    add("--table", metavar="FILE", type=Path, default=TABLE, help="the lines to run [table.txt beside RESULTS.md]")
    add("--only", metavar="TEXT", default="", help="hunts with TEXT in their names")
    add("-j", "--jobs", metavar="N", type=int, default=os.cpu_count(), help="hunts at a time [one a core]")
    add("--list", action="store_true", help="print names and stop")
    options = parser.parse_args()
    try:
        chosen = [hunt for hunt in hunts(options.table.read_text()) if options.only in hunt.name]
    except (OSError, ValueError) as error:
        parser.error(f"{options.table}: {error}")
    if options.list:
        print("\n".join(hunt.name for hunt in chosen))
        return 0
    if not chosen:
        parser.error(f"--only '{options.only}': no hunt has that in its name; --list prints them")
    rows, problems = [], 0
    with warm.server(), ThreadPoolExecutor(options.jobs) as pool:
        for pending in [pool.submit(run, hunt) for hunt in chosen]:
            try:
                found = pending.result()
            except RuntimeError as error:
                print(f"hunt: error: {error}", file=sys.stderr)
                problems += 1
                continue
            rows += found
            for each in found:
                print(f"{each['verdict']:14} {each['hunt']}, {each['candidate']}", flush=True)
                for text in each["said"]:
                    print(f"    {text}", flush=True)
    verdicts = [row["verdict"] for row in rows]
    print(f"{len(rows)} pairs: {verdicts.count('same')} same, {verdicts.count('different')} different")
    if options.table == TABLE:
        RESULTS.write_text(results(hunts(TABLE.read_text())))
    if problems or "could-not-look" in verdicts:
        return 2
    return 1 if "different" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
