"""A program that is run twice on several ranks computes the same bits, and is recorded so."""

import json

from sweeps import warm
from sweeps.configurations import GPT, Configuration
from sweeps.runs import TTRACE, collect, run

TWICE = Configuration(GPT, "bf16", dict(tp=2, dp=2), "--sp --zero 1")


def test_two_runs_on_four_ranks_have_equal_bits(tmp_path):
    with warm.server():
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            collect(TWICE, tmp_path / name)
    first, second, report = tmp_path / "first", tmp_path / "second", tmp_path / "report.json"
    annotations = ["-a", str(first / "annotations.yaml")]
    # Without tolerances nothing but equal values passes.
    sides = ["--reference", str(first / "trace"), "--candidate", str(second / "trace")]
    run([TTRACE, "check", *sides, *annotations, "--json", str(report)])
    counts = json.loads(report.read_text())["counts"]
    assert counts["pass"] > 1000 and counts["fail"] == counts["missing"] == 0, counts
    # And every rank has the bits that it had.
    told = run([TTRACE, "sdc", "--healthy", str(first / "trace"), "--suspect", str(second / "trace")])
    assert told.startswith("same"), told
