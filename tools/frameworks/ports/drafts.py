"""Holds a draft (`ttrace annotate --reference`) against a correspondence that comes with ttrace: what does either map,
and to the same values? Prints what only one of them maps, or maps otherwise; exit code 1 where that is anything."""

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[3] / "build/bin/ttrace"


def measured(arguments: argparse.Namespace, correspondence: str, folder: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """By tensor, what a check with the correspondence measured of it."""
    table = folder / "measured.csv"
    sides = ["--reference", arguments.reference, "--candidate", arguments.candidate]
    how = ["--correspondence", correspondence, "-t", "default", "--csv", str(table)]
    annotations = ["-a", arguments.annotations] if arguments.annotations else []
    subprocess.run([PROGRAM, "check", "-q", *sides, *how, *annotations], stdout=subprocess.DEVNULL, check=False)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    return {tuple(row[key] for key in ("kind", "name", "iteration", "microbatch", "pass")): row for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reference")
    parser.add_argument("candidate")
    parser.add_argument("correspondence", help="as of check --correspondence")
    parser.add_argument("-a", "--annotations", help="the candidate's")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draft = str(folder / "draft.yaml")
        words = ["annotate", arguments.candidate, "--reference", arguments.reference, "-o", draft]
        subprocess.run([PROGRAM, *words, *(["-a", arguments.annotations] if arguments.annotations else [])], check=True)
        shipped, drafted = (measured(arguments, each, folder) for each in (arguments.correspondence, draft))
    # Tolerances depend on how deep the whole forward is, which further tensors change.
    values = ("elements", "rel_err", "reference_norm", "candidate_norm", "max_abs")
    both = shipped.keys() & drafted.keys()
    other = [key for key in both if any(shipped[key][value] != drafted[key][value] for value in values)]
    print(
        f"{len(shipped)} tensors by the file, {len(drafted)} by the draft, {len(both)} by both: {len(other)} otherwise"
    )
    for what, keys in (
        ("otherwise", other),
        ("not in the draft", shipped.keys() - drafted.keys()),
        ("only in the draft", drafted.keys() - shipped.keys()),
    ):
        for kind, tensor in sorted({key[:2] for key in keys}):
            print(f"{what}: {tensor} {kind}")
    return 1 if shipped.keys() - drafted.keys() or other else 0


if __name__ == "__main__":
    sys.exit(main())
