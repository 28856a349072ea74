"""What ttrace says about one bug of the corpus."""

import shutil
import tempfile
import time
from pathlib import Path
from typing import List

from sweeps.runs import References, check, collect

from .bench import read_csv
from .corpus import Case

COVERAGE_REASONS = {"missing-in-candidate", "missing-in-reference", "omission", "missing-rank", "incomplete-rank",
                    "shape-mismatch", "overlap", "duplicate-tensor", "duplicate-rank"}  # fmt: skip


def detection_row(case: Case, references: References, directory: Path) -> dict:
    """Runs the bug and checks it. `found` and `expected` are the first wrong tensor; `ratio` is how often the former's
    error is what was allowed, None where it was not measured; the checks are what would have found the bug without
    comparing any value with the reference's."""
    reference = references.of(case.configuration.model, case.configuration.dtype)
    home = Path(tempfile.mkdtemp(dir=directory))
    started = time.monotonic()
    collect(case.configuration, home, "--bug", case.bug)
    report = check(home, reference, reference / "tolerance.yaml")
    cause = report["root_cause"]
    reasons = {finding["reason"] for finding in report["findings"]}
    found = _words(cause["name"], cause["kind"], cause["iteration"], cause["microbatch"]) if cause else None
    first = case.first
    expected = _words(first.name, first.kind, first.iteration, first.microbatch)
    row = {
        "number": case.number,
        "bug": case.bug,
        "found": found,
        "expected": expected,
        "right": found == expected,
        "ratio": cause["ratio"] if cause else None,
        "replica_check": "replicas-disagree" in reasons,
        "coverage_check": not reasons.isdisjoint(COVERAGE_REASONS),
        "loss_relative_difference": _loss_difference(read_csv((home / "measured.csv").read_text())),
        "seconds": round(time.monotonic() - started, 1),
    }
    shutil.rmtree(home)
    return row


def _words(name: str, kind: str, iteration: int, microbatch) -> str:
    step = f"iteration {iteration}" if microbatch is None else f"iteration {iteration}, micro-batch {microbatch}"
    return f"{name} {kind}, {step}"


def _loss_difference(measured: List[dict]):
    """|candidate - reference| / reference of the mean loss of an iteration, at its largest; None where a loss is not
    finite. The norm of a scalar is its absolute value."""
    losses = [row for row in measured if row["name"] == "loss" and row["kind"] == "scalar" and row["reference_norm"]]
    if any(row["reason"] == "not-finite" for row in losses):
        return None
    sums = {}
    for row in losses:
        a, b = sums.get(row["iteration"], (0, 0))
        sums[row["iteration"]] = a + float(row["reference_norm"]), b + float(row["candidate_norm"])
    return max((abs(b - a) / a for a, b in sums.values()), default=None)
