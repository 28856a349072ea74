"""A draft of annotations, made from a correct run and the reference, checks that run as one written by hand does."""

import json
import sys

import pytest

from conftest import TRAIN, TTRACE, run

RUNS = {
    "tp2-sp-dp2": ("tp=2,dp=2,sp=tp", 4, ["--tp", 2, "--sp", "--dp", 2]),
    "pp2": ("pp=2", 2, ["--pp", 2]),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_draft_from_a_correct_run_checks_it(reference, tmp_path, name):
    axes, ranks, arguments = RUNS[name]
    trusted = reference("bf16")
    candidate, draft, report = tmp_path / "candidate", tmp_path / "draft.yaml", tmp_path / "report.json"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    run(TTRACE, "collect", "-o", candidate, "--axes", axes, "--", *launch, TRAIN, "--dtype", "bf16", *arguments)
    run(TTRACE, "annotate", candidate, "--reference", trusted.trace, "-o", draft)
    run(TTRACE, "check", "--reference", trusted.trace, "--candidate", candidate, "-a", draft, "-t", trusted.tolerance,
        "--json", report)
    counts = json.loads(report.read_text())["counts"]
    assert counts["pass"] > 500 and counts["missing"] == 0
    assert counts["untrusted"] <= 0.02 * counts["compared"]
    # Every tensor is placed by a line of the draft, and no line is idle.
    lint = json.loads(run(TTRACE, "annotate", candidate, "--lint", draft, "--json").stdout)
    assert [message for message in lint["messages"] if message["mistake"]] == []
