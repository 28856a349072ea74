"""`ttrace lint`: what to mend in annotations."""

import json

import numpy
from conftest import ANNOTATIONS, model, shards

from traces import Tensor, record_run

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


def test_a_lint_says_what_to_write_for_a_mask_below_a_rule_for_hidden_states(ttrace, tmp_path):
    hidden, mask = numpy.arange(8, dtype="float32").reshape(4, 2), numpy.tri(4, dtype=bool)[None]
    tensors = [Tensor("attn:0", hidden, kind="input"), Tensor("attn:mask", mask, kind="input")]
    record_run(tmp_path / "reference", [tensors])
    parts = [[Tensor("attn:0", half, kind="input"), tensors[1]] for half in numpy.split(hidden, 2)]
    record_run(tmp_path / "candidate", parts, axes="tp=2,sp=tp")
    (tmp_path / "a.yaml").write_text("attn:\n  input: {sp_dim: 0}\n")
    for reference in ((), ("--reference", "reference")):
        text = ttrace.reports(*LINT, *reference, code=1)
        assert text.startswith("a.yaml:1: 'attn': input: splits attn:mask input, of which ")
        assert text.endswith("expected `attn:mask: {input: {}}` [misplaced]\n1 to mend, 0 to know of\n")
    (tmp_path / "a.yaml").write_text("attn:\n  input: {sp_dim: 0}\nattn:mask: {input: {}}\n")
    assert ttrace.reports(*LINT, "--reference", "reference", code=0) == "0 to mend, 0 to know of\n"


def test_a_lint_sees_what_two_stages_share_and_axes_that_claim_too_much(ttrace, tmp_path):
    before, after = numpy.arange(4, dtype="float32"), numpy.arange(1, 5, dtype="float32")

    def weight(name):
        kinds = {"param": before, "param_after": after}
        return [Tensor(name, values, kind=kind, microbatch=-1) for kind, values in kinds.items()]

    record_run(tmp_path / "candidate", [weight("embedding.weight"), weight("head.weight")], axes="pp=2")
    (tmp_path / "a.yaml").write_text("embedding.weight: {tp: replicate}\nhead.weight: {tp: replicate}\n")
    assert "`parallelism: {tied: {head.weight: embedding.weight}}` [untied]\n" in ttrace.reports(*LINT, code=1)

    hidden = Tensor("norm", before, kind="input")
    record_run(tmp_path / "whole", [[hidden], [hidden]], axes="tp=2,sp=tp")
    (tmp_path / "a.yaml").write_text("norm:\n  input: {sp_dim: 0}\n")
    report = json.loads(ttrace.reports("lint", "whole", "-a", "a.yaml", "--json", "-", code=1))
    assert [message["check"] for message in report["messages"]] == ["no-sequence-parallelism"]


def test_a_norm_that_begins_with_ones_is_no_mistake(ttrace, tmp_path):
    ones, after = numpy.ones(4, dtype="float32"), numpy.arange(4, dtype="float32")

    def weight(after):
        kinds = {"param": ones, "param_after": after}
        return [Tensor("norm.weight", values, kind=kind, microbatch=-1) for kind, values in kinds.items()]

    (tmp_path / "a.yaml").write_text("parallelism: {known_axes: [tp]}\n")
    record_run(tmp_path / "candidate", [weight(after), weight(after)], axes="tp=2")
    assert ttrace.reports(*LINT, code=0) == "0 to mend, 0 to know of\n"
    record_run(tmp_path / "other", [weight(after), weight(after + 1)], axes="tp=2")
    assert ttrace.reports("lint", "other", "-a", "a.yaml", code=1) == (
        "no rule places norm.weight param, param_after: taken as replicated on every axis [unplaced]\n"
        "1 to mend, 0 to know of\n"
    )
