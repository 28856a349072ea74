"""`tools/evaluate` from the command to the page."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from evaluations import bug_errors, bugs, page

ROOT = pathlib.Path(__file__).resolve().parents[3]


def evaluate(*arguments, expect=0):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-m", "evaluations", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert result.returncode == expect, result.stdout + result.stderr
    return result


@pytest.mark.nightly  # a part of tools/evaluate
def test_one_bug_and_its_rules_are_measured_and_shown(tmp_path):
    published = page.RESULTS.read_bytes() if page.RESULTS.exists() else None
    evaluate("--only", "bugs", "--only", "rules", "--case", "embedding-mask", "--json", tmp_path / "e.json")
    evidence = json.loads((tmp_path / "e.json").read_text())
    assert (evidence["bugs"], evidence["detected"], evidence["first_tensor_right"]) == (1, 1, 1)
    assert evidence["configurations"] is None and evidence["false_alarms"] is None
    (bug,) = evidence["bug_rows"]
    assert bug["found"].startswith("embedding.word_embeddings output") and bug["right"] and bug["ratio"] > 10
    assert not bug["replica_check"] and not bug["coverage_check"] and bug["loss_relative_difference"] < 0.01
    (rules,) = evidence["rules"]
    everything = rules["rules"]["ttrace"]["all tensors"]
    assert everything["at_the_bug"] and everything["wrong"] > 100 and everything["correct"] == 0
    assert rules["rules"]["allclose atol 1e-8 rtol 1e-5"]["all tensors"]["correct"] > 0
    # A part of the evidence is not published.
    assert (page.RESULTS.read_bytes() if page.RESULTS.exists() else None) == published

    results = {
        name: {"data": evidence[key], "seconds": 1, "machine": "here", "commit": "0123456789"}
        for name, key in (("bugs", "bug_rows"), ("rules", "rules"))
    }
    text = page.page(page.rendered(results))
    assert (
        "1 of 1 detected" in text
        and "| embedding-mask |" in text
        and "| ttrace | 0 of 0 | 0 of 1 | 0 of 1 | 1 of 1 |" in text
    )


def test_nothing_measured_is_no_success():
    assert "--case 'no-such-bug'" in evaluate("--only", "bugs", "--case", "no-such-bug", expect=2).stderr


def test_a_missed_bug_is_counted_as_missed():
    row = {"found": None, "right": False}
    assert bugs.summary([row, {"found": "x", "right": True}]) == {"bugs": 2, "detected": 1, "first_tensor_right": 1}


def test_the_same_numbers_make_the_same_figure(tmp_path):
    row = {
        "number": 1,
        "bug": "b",
        "configuration": "c bf16 tp2",
        "direction": "forward",
        "tensor": "t",
        "epsilon": 0.0078125,
        "wrong": [0.5, 0.4, None],
        "estimate": [0.01, 0.02, 0.0],
        "correct": [0.01, 0.01, 0.02],
    }
    figures = []
    for _ in range(2):
        bug_errors.draw({"layers": 3, "rows": [row]}, tmp_path)
        figures.append([(tmp_path / f"bug_errors.{kind}").read_bytes() for kind in ("svg", "csv")])
    assert figures[0] == figures[1]
    assert b"estimate" in figures[0][0] and figures[0][1].count(b"\n") == 4
