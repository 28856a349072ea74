"""A draft of annotations, made from a correct run and the reference, checks that run as one written by hand does."""

import json

import pytest

from sweeps.configurations import GPT, Configuration
from sweeps.runs import TTRACE, check, collect, run

RUNS = [Configuration(GPT, "bf16", dict(tp=2, dp=2), "--sp"), Configuration(GPT, "bf16", dict(pp=2))]


@pytest.mark.parametrize("configuration", RUNS, ids=lambda configuration: configuration.name)
def test_a_draft_from_a_correct_run_checks_it(configuration, references, tmp_path):
    reference = references.of(configuration.model, configuration.dtype)
    collect(configuration, tmp_path)
    trace, draft = str(tmp_path / "trace"), str(tmp_path / "annotations.yaml")  # in place of the preset
    run([TTRACE, "annotate", trace, "--reference", str(reference / "trace"), "-o", draft])
    report = check(tmp_path, reference, reference / "tolerance.yaml")
    counts = report["counts"]
    assert report["verdict"] == "same"
    assert counts["pass"] > 500 and counts["missing"] == 0
    assert counts["untrusted"] <= 0.02 * counts["compared"]
    # Every tensor is placed, by a line of the draft or by its shape, and no line is idle.
    lint = json.loads(run([TTRACE, "lint", trace, "-a", draft, "--reference", str(reference / "trace"), "--json", "-"]))
    assert [message for message in lint["messages"] if message["mistake"]] == []
