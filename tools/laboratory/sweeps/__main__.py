import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from freshness import commit, machine, sentence

from . import warm
from .configurations import Configuration, configurations
from .runs import ROOT, References, RunError, report_of

TABLE = ROOT / "tools" / "laboratory" / "sweeps" / "RESULTS.md"


def check(configuration: Configuration, references: References, directory: Path) -> dict:
    """A row of the results."""
    started = time.monotonic()
    report = report_of(configuration, references, directory)
    cause = report["root_cause"]
    return {
        "name": configuration.name,
        "ranks": configuration.world_size,
        "same": report["verdict"] == "same",
        "coverage": report["coverage"],
        **report["counts"],
        "waived": report["waived"],
        "first_wrong": cause["message"] if cause else None,
        "seconds": round(time.monotonic() - started, 1),
    }


def summary(rows: list[dict]) -> dict:
    same = sum(row["same"] for row in rows)
    return {
        "configurations": len(rows),
        "same": same,
        "different": len(rows) - same,
        "coverage_min": min(row["coverage"] for row in rows),
        "rows": rows,
    }


def table(result: dict, seconds: float) -> str:
    lines = [
        "# Correct parallel configurations",
        "",
        "Made by `tools/sweep`. Each is collected from real processes over gloo and checked against the run of one "
        "process; *coverage* is the share of the reference's tensors that were compared.",
        "",
        f"{result['configurations']} configurations: {result['same']} same, {result['different']} different; "
        f"least coverage {result['coverage_min']:.0%}.",
        "",
        "| configuration | ranks | verdict | coverage | compared | pass | untrusted | missing | fail |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['name']} | {row['ranks']} | {'same' if row['same'] else 'different'} | {row['coverage']:.0%} "
            f"| {row['compared']} | {row['pass']} | {row['untrusted']} | {row['missing']} | {row['fail']} |"
        )
    lines += ["", sentence("tools/sweep", seconds, [commit()], machine())]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/sweep",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs correct parallel configurations of tinygpt and torchgpt on real processes and checks each\n"
        "against one process: every one must be the same, with all of the reference's tensors compared.",
        epilog="Exit code: 0 when every configuration is the same, 1 when one is different, 2 when one could not be\n"
        "run. The whole sweep also writes tools/laboratory/sweeps/RESULTS.md.\n\n"
        "Examples:\n  tools/sweep --quick\n  tools/sweep --only 'gpt-packed' --json packed.json",
    )
    parser.add_argument("--quick", action="store_true", help="about a dozen configurations, one of each kind")
    parser.add_argument("--only", metavar="TEXT", default="", help="configurations whose name contains TEXT")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results there")
    options = parser.parse_args()
    chosen = [c for c in configurations(options.quick) if options.only in c.name]
    if options.list:
        print("\n".join(c.name for c in chosen))
        return 0
    if not chosen:
        parser.error(f"--only '{options.only}': no configuration has that in its name; --list prints them")
    started = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory(prefix="ttrace-sweep-") as directory, warm.server():
        references = References(Path(directory))
        for number, configuration in enumerate(chosen, 1):
            try:
                row = check(configuration, references, Path(directory))
            except RunError as error:
                print(f"sweep: error: {configuration.name}: {error}", file=sys.stderr)
                return 2
            rows.append(row)
            print(
                f"[{number}/{len(chosen)}] {'same     ' if row['same'] else 'DIFFERENT'} {row['coverage']:4.0%} "
                f"{row['seconds']:5.1f} s  {row['name']}",
                flush=True,
            )
            if not row["same"]:
                print(f"    {row['first_wrong']}", flush=True)
    result = summary(rows)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if not options.quick and not options.only:
        TABLE.write_text(table(result, time.monotonic() - started))
    print(f"{result['same']} of {result['configurations']} the same; least coverage {result['coverage_min']:.0%}")
    return 0 if result["different"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
