"""What a program says that it could not record is counted apart, and is not the verdict."""

import json

from conftest import CHECK, changed, model

from traces import record_run

MLP = "layers.0.mlp output, iteration 0, micro-batch 0"


def record(directory, tensors, *statements):
    return record_run(directory, [tensors], provenance=json.dumps({"not_seen": statements}))


def compiled(*modules, kinds=("output",)):
    return {"reason": "compiled by torch.compile", "kinds": kinds, "iterations": [0], "modules": modules}


def without(*names):
    return [tensor for tensor in model() if (tensor.kind, tensor.name) not in names]


def lines_about(text, word):
    return [line for line in text.splitlines() if word in line]


def test_a_tensor_that_the_candidate_could_not_record_is_counted_apart_and_named(ttrace, tmp_path, reference):
    record(tmp_path / "candidate", without(("output", "layers.0.mlp")), compiled("layers.0.mlp"))
    text = ttrace.reports(*CHECK, "-t", "t.yaml", code=0)
    assert text.startswith("same\n") and text.endswith(
        "3 compared: 3 pass, 0 fail, 0 untrusted; 0 missing, 1 not seen\n"
    )
    assert lines_about(text, "note") == [
        f"note: not seen in the candidate: compiled by torch.compile: 1 tensor, such as {MLP}"
    ]
    report = json.loads(ttrace.reports(*CHECK, "-t", "t.yaml", "--json", "-", code=0))
    assert report["schema"] == "ttrace-report/5" and report["counts"]["not_seen"] == 1
    assert (report["root_cause"], report["coverage"]) == (None, 0.75)
    (finding,) = report["findings"]
    assert (finding["verdict"], finding["reason"]) == ("not-seen", "not-seen-in-candidate")
    assert ",not-seen,not-seen-in-candidate," in ttrace.reports(*CHECK, "-t", "t.yaml", "--csv", "-", code=0)
    junit = ttrace.reports(*CHECK, "-t", "t.yaml", "--junit", "-", code=0)
    assert 'tests="4" failures="0" errors="0" skipped="1"' in junit


def test_the_same_tensor_is_missing_if_nobody_said_so(ttrace, tmp_path, reference):
    record(tmp_path / "candidate", without(("output", "layers.0.mlp")), compiled("layers.1.mlp"))
    text = ttrace.reports(*CHECK, "-t", "t.yaml", code=1)
    assert text.startswith(f"different\nfirst missing tensor: {MLP}\n")


def test_what_was_not_seen_is_not_the_headline(ttrace, tmp_path, reference):
    tensors = [tensor for tensor in changed(model(), "layers.0.mlp", (1, 2), 9) if tensor.name != "embedding"]
    record(tmp_path / "candidate", tensors, compiled("embedding"))
    text = ttrace.reports(*CHECK, "-t", "t.yaml", code=1)
    assert text.startswith(f"different\nfirst wrong tensor: {MLP}\n")
    assert text.endswith("3 compared: 2 pass, 1 fail, 0 untrusted; 0 missing, 1 not seen\n")


def test_a_strict_check_refuses_it(ttrace, tmp_path, reference):
    record(tmp_path / "candidate", without(("output", "layers.0.mlp")), compiled("layers.0.mlp"))
    text = ttrace.reports(*CHECK, "-t", "t.yaml", "--strict", code=2)
    assert text.startswith("could-not-look: 1 tensor was not seen (--strict)\n")
    junit = ttrace.reports(*CHECK, "-t", "t.yaml", "--strict", "--junit", "-", code=2)
    assert 'failures="1"' in junit


def test_all_tensors_of_a_kind_cannot_hide(ttrace, tmp_path, reference):
    hidden = compiled("layers.0.mlp.weight", kinds=("main_grad",))
    record(tmp_path / "candidate", without(("main_grad", "layers.0.mlp.weight")), hidden)
    text = ttrace.reports(*CHECK, "-t", "t.yaml", code=2)
    assert text.startswith("could-not-look: no main_grad passed, and 1 tensor was not seen\n")
    junit = ttrace.reports(*CHECK, "-t", "t.yaml", "--junit", "-", code=2)
    assert 'failures="1"' in junit and "no main_grad passed" in junit


def test_the_reference_may_be_the_one_that_could_not_record(ttrace, tmp_path, candidate):
    record(tmp_path / "reference", without(("output", "layers.0.mlp")), compiled("layers.0.mlp"))
    candidate()
    text = ttrace.reports(*CHECK, "-t", "t.yaml", code=0)
    assert lines_about(text, "note") == [
        f"note: not seen in the reference: compiled by torch.compile: 1 tensor, such as {MLP}"
    ]


def left_out(*modules, kinds=("output",)):
    reason = "collected with --except layers.0.mlp"
    return {"reason": reason, "kinds": kinds, "iterations": [0], "modules": modules, "by_design": True}


def test_what_was_left_out_by_design_is_not_missing_and_the_verdict_says_what_it_is_about(ttrace, tmp_path, reference):
    record(tmp_path / "candidate", without(("output", "layers.0.mlp")), left_out("layers.0.mlp"))
    text = ttrace.reports(*CHECK, "-t", "t.yaml", code=0)
    assert text.startswith(
        "same, of what both traces hold\nthe candidate holds less by design (collected with --except layers.0.mlp): "
        "of the reference, 1 tensor not recorded in it: 1 output\n"
    )
    report = json.loads(ttrace.reports(*CHECK, "-t", "t.yaml", "--json", "-", code=0))
    assert [finding["reason"] for finding in report["findings"]] == ["not-recorded-in-candidate"]
    ttrace.reports(*CHECK, "-t", "t.yaml", "--strict", code=2)


def test_a_tensor_that_was_not_declared_left_out_is_missing(ttrace, tmp_path, reference):
    tensors = without(("output", "layers.0.mlp"), ("output", "embedding"))
    record(tmp_path / "candidate", tensors, left_out("layers.0.mlp"))
    text = ttrace.reports(*CHECK, "-t", "t.yaml", code=1)
    assert text.startswith("different\n") and "\nfirst missing tensor: embedding output, iteration 0" in text
    assert text.endswith("2 compared: 2 pass, 0 fail, 0 untrusted; 1 missing, 1 not seen\n")


def test_a_wrong_tensor_among_those_that_were_not_left_out_is_found(ttrace, tmp_path, reference):
    tensors = [tensor for tensor in changed(model(), "layers.0.mlp", (1, 2), 9) if tensor.name != "embedding"]
    record(tmp_path / "candidate", tensors, left_out("embedding"))
    text = ttrace.reports(*CHECK, "-t", "t.yaml", code=1)
    assert f"\nfirst wrong tensor: {MLP}\n" in text


def test_what_both_left_out_is_not_called_same_without_a_word(ttrace, tmp_path):
    for side in ("reference", "candidate"):
        record(tmp_path / side, without(("output", "layers.0.mlp")), left_out("layers.0.mlp"))
    report = json.loads(ttrace.reports(*CHECK, "--json", "-", code=0))
    assert report["partial"].count("holds less by design (collected with --except layers.0.mlp)") == 2


def test_a_malformed_statement_is_refused(ttrace, tmp_path, reference):
    record(tmp_path / "candidate", model(), {"reason": "r", "kinds": ["outputs"], "iterations": [0]})
    assert ttrace.refuses(*CHECK, "-t", "t.yaml") == (
        "candidate/rank-00000.h5: its provenance says of the kind 'outputs' that it was not seen; "
        "expected kinds and names of tensors, at most 10000"
    )
