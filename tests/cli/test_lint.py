"""`ttrace lint`: what to mend in annotations."""

import json

from conftest import ANNOTATIONS, model, shards

from traces import record_run

LINT = ("lint", "candidate", "-a", "a.yaml")


def test_a_lint_of_annotations_that_fit_finds_nothing(ttrace, candidate):
    candidate()
    assert ttrace.reports(*LINT, code=0) == "0 to mend, 0 to know of\n"


def test_a_lint_names_file_and_line(ttrace, candidate):
    candidate()
    (ttrace.directory / "a.yaml").write_text(ANNOTATIONS + "layers.*.attn:\n  output: {cp_dim: 0}\n")
    assert ttrace.reports(*LINT, code=1) == (
        "a.yaml:7: 'layers.*.attn': output: places no tensor of the trace [unused-rule]\n"
        "note: a.yaml:8: 'layers.*.attn': output: axis 'cp' is not in the trace [tp=2], so it has size 1 "
        "[absent-axis]\n"
        "1 to mend, 1 to know of\n"
    )
    report = json.loads(ttrace.reports(*LINT, "--json", "-", code=1))
    assert report["schema"] == "ttrace-lint/1"
    assert [(m["check"], m["mistake"], m["line"]) for m in report["messages"]] == [
        ("unused-rule", True, 7),
        ("absent-axis", False, 8),
    ]


def test_a_lint_of_contradictory_annotations_could_not_look(ttrace, candidate):
    candidate()
    (ttrace.directory / "a.yaml").write_text("embedding:\n  output: {tq_dim: 1}\n")
    assert ttrace.refuses(*LINT) == "a.yaml:2: 'embedding': output: axis 'tq' is not an axis of the trace [tp]"


def test_a_lint_that_goes_to_a_file_is_read_by_people_too(ttrace, candidate):
    candidate()
    assert ttrace.reports(*LINT, "--json", "lint.json", code=0) == "0 to mend, 0 to know of\n"
    assert json.loads((ttrace.directory / "lint.json").read_text())["messages"] == []


def test_an_axis_of_another_factoring_is_in_the_trace(ttrace, tmp_path):
    record_run(tmp_path / "candidate", shards(model()), axes="tp=2/etp=1,ep=2")
    (tmp_path / "a.yaml").write_text(ANNOTATIONS.replace("  tp_dim: 0", "  ep_dim: 0"))
    assert ttrace.reports(*LINT, code=0) == "0 to mend, 0 to know of\n"
