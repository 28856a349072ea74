"""A check that lacks what it needs says so in a line, with the command that makes it."""

import json
import re

from conftest import CHECK
from forged import change, training_run

from traces import record_run


def test_a_run_is_not_held_against_itself_unless_that_is_asked_for(project):
    words = ("check", "--reference", "reference", "--candidate", "reference")
    assert project.refuses(*words) == (
        "reference: holds the same run as the reference reference (reference), and every run equals itself; expected "
        "another run, or --allow-same-run"
    )
    project.record("candidate", training_run(), run_id="reference")  # a copy
    assert project.refuses(*CHECK).startswith("candidate: holds the same run as the reference reference (reference)")
    assert project(*words, "--allow-same-run", code=0)[0].startswith("same\n")


def test_without_tolerances_a_run_that_rounds_otherwise_gets_one_line(project):
    project.record("candidate", training_run(9))
    report = project.check(code=1)
    assert report == (
        "different: no tolerances (-t), and 58 of 63 tensors are not equal bit for bit, 49 by more than `-t default` "
        "allows, first layers.0.mlp input, iteration 0, micro-batch 0: rel_err 1.18e-06, allowed 1.88e-07; `ttrace "
        "estimate-tolerance` measures what rounding does to each, a file for -t\n"
        "\n"
        "next: ttrace estimate-tolerance -o tolerance.yaml --reference reference -- python train.py\n"
        "all findings: ttrace check --reference reference --candidate candidate --all\n"
        "\n"
        "63 compared: 5 pass, 58 fail, 0 untrusted; 0 missing\n"
    )
    assert project.check("--all", code=1).startswith("different\nfirst wrong tensor: ")
    found = json.loads(project.check("--json", "-", code=1))
    assert found["instead"].startswith("no tolerances (-t), and 58 of 63 ") and len(found["findings"]) == 58
    assert found["next"] == "ttrace estimate-tolerance -o tolerance.yaml --reference reference -- python train.py"


def test_without_tolerances_a_missing_tensor_is_what_it_is(project):
    project.record("candidate", training_run()[:-1])
    assert project.check(code=1).startswith(
        "different\nfirst missing tensor: layers.0.key.bias param_after, iteration 0\n"
    )


def test_a_parallel_trace_of_which_nobody_knows_the_mapping_says_what_is_wrong_all_the_same(estimated):
    ranks = [training_run(), [tensor.with_values(tensor.values * 2) for tensor in training_run()]]
    record_run(estimated.directory / "candidate", ranks, axes="tp=2")
    report = estimated.check("-t", "t.yaml", code=1)
    assert report.startswith("different\nfirst wrong tensor: ")
    assert re.search(
        r"note: no annotations \(-a\), and neither the program nor its tensors say how 2 ranks hold them: as their "
        r"shapes place them, \d+ of \d+ differ; `ttrace annotate` drafts a file for -a",
        " ".join(report.split()),
    )
    assert "\nnext: ttrace annotate candidate --reference reference -o annotations.yaml\n" in report
    (estimated.directory / "a.yaml").write_text("layers.*.mlp:\n  output: {}\n")
    assert estimated.check("-t", "t.yaml", "-a", "a.yaml", code=1).startswith("different\nfirst wrong tensor: ")


def test_runs_that_began_with_different_parameters_are_not_a_matter_of_annotations_alone(estimated):
    changed = change(training_run(), lambda values: values + 1, kind="param")
    record_run(estimated.directory / "candidate", [changed, changed], axes="tp=2")
    report = estimated.check("-t", "t.yaml", code=1)
    assert re.search(
        r"; or the runs began with different parameters: \S+, which every rank holds whole, is not the reference's",
        report,
    )
