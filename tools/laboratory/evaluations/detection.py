"""What finds a bug of the corpus: ttrace's report, a look at one half of it, or the loss."""

import math
import re
import shutil
import tempfile
import time
from pathlib import Path

from sweeps.runs import References, check, collect, self_check

from .corpus import Case, First


def detection_row(case: Case, references: References, directory: Path) -> dict:
    """Runs the case with its bug, checks it, and tells
    - `number`, `bug`;
    - `found`, the first wrong tensor (None: the run was called the same), `message`, what the report says of it, and
      `ratio`, its error in units of what is allowed (None where nothing was measured);
    - `expected`, the tensor where the bug is, and whether it is `right`;
    - `self_check`, the first tensor that is wrong by the trace's own operands (`ttrace abft`; None: none is);
    - `diagnosis`, what the error looks like, in a word (None: like nothing known) and with its `sentence`, and
      `mechanism`, the word that is right;
    - `replica_check`, `coverage_check`: whether comparing ranks' copies, or looking for what is missing, is enough;
    - `loss_relative_difference`, the largest of any step, of the loss that the program prints, from the reference's
      (None: it is not finite);
    - `seconds`, of run and check."""
    reference = references.of(case.configuration.model, case.configuration.dtype)
    started = time.monotonic()
    home = Path(tempfile.mkdtemp(dir=directory))
    collect(case.configuration, home, "--bug", case.bug)
    report = check(home, reference, reference / "tolerance.yaml")
    seconds = time.monotonic() - started
    cause, alone = report["root_cause"], self_check(home)["root_cause"]
    found = cause and First(cause["name"], cause["kind"], cause["microbatch"], cause["iteration"])
    row = {
        "number": case.number,
        "bug": case.bug,
        "found": cause and str(found),
        "message": cause and cause["message"],
        "ratio": cause and cause["ratio"],
        "expected": str(case.first),
        "right": found == case.first,
        "replica_check": any(finding["reason"] == "replicas-disagree" for finding in report["findings"]),
        "coverage_check": report["counts"]["missing"] > 0,
        "self_check": alone and f"{alone['name']} {alone['kind']}",
        "diagnosis": cause and cause["diagnosis"],
        "mechanism": case.diagnosis,
        "sentence": cause and cause["sentence"],
        "loss_relative_difference": largest_difference(printed_losses(home), printed_losses(reference)),
        "seconds": round(seconds, 1),
    }
    shutil.rmtree(home)
    return row


def printed_losses(home: Path) -> list[float]:
    """One per step."""
    lines = (home / "output.txt").read_text()
    return [float(loss) for loss in re.findall(r"^step \d+ loss (\S+)", lines, re.MULTILINE)]


def largest_difference(losses: list[float], right: list[float]) -> float | None:
    """Relative; None where a loss is not finite."""
    differences = [abs(loss - other) / abs(other) for loss, other in zip(losses, right, strict=True)]
    return max(differences) if all(map(math.isfinite, differences)) else None
