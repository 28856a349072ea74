"""What a training program can cause is a finding, exit code 1, and the other tensors are still compared."""

import json
import os
import shutil
import signal
from dataclasses import replace

import numpy
import pytest
from conftest import CHECK, changed, model, shards

from traces import Recorder, bfloat16, record_rank, record_run

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def check(ttrace, tmp_path):
    """Checks the candidate; returns the report as (counts, [(name, reason, message)])."""

    def run(reference, candidate, *options, code=1):
        record_run(tmp_path / "reference", [reference])
        if candidate is not None:
            record_run(tmp_path / "candidate", candidate, axes="tp=2")
        return read(ttrace.reports(*CHECK, *options, "--json", "-", code=code))

    return run


def read(text):
    report = json.loads(text)
    return report, [(item["name"], item["reason"], item["message"]) for item in report["findings"]]


def counts(report):
    """compared, pass, fail, untrusted, missing"""
    return tuple(report["counts"].values())[:5]


def at(value):
    return changed(model(), "layers.0.mlp", (1, 2), value)


LAYER = "layers.0.mlp output, iteration 0, micro-batch 0: "


@pytest.mark.parametrize(
    "reference, candidate, of_reference, of_candidate",
    [
        (NAN, 4, "1 NaN and 0 Inf", "0 NaN and 0 Inf"),
        (4, NAN, "0 NaN and 0 Inf", "1 NaN and 0 Inf"),
        (4, INF, "0 NaN and 0 Inf", "0 NaN and 1 Inf"),
        (NAN, INF, "1 NaN and 0 Inf", "0 NaN and 1 Inf"),
        (INF, -INF, "0 NaN and 1 Inf", "0 NaN and 1 Inf"),
    ],
)
def test_what_is_not_finite_on_one_side_fails(check, reference, candidate, of_reference, of_candidate):
    report, findings = check(at(reference), shards(at(candidate)), "-t", "t.yaml")
    assert findings == [
        (
            "layers.0.mlp",
            "not-finite",
            LAYER + "NaN or Inf at other places: the reference has "
            f"{of_reference}, the candidate {of_candidate}; 1 of 32 elements disagree",
        )
    ]
    assert counts(report) == (4, 3, 1, 0, 0)


def test_nan_at_the_same_place_on_both_sides_is_noted(check):
    report, findings = check(at(NAN), shards(at(NAN)), "-t", "t.yaml", code=0)
    assert findings == []
    assert report["notes"] == [
        "1 tensor with NaN or Inf at the same places on both sides, judged by the "
        "other elements, such as layers.0.mlp output, iteration 0, micro-batch 0"
    ]


def test_a_wrong_element_beside_nan_on_both_sides_fails(check):
    candidate = changed(at(NAN), "layers.0.mlp", (1, 3), 90)
    report, findings = check(at(NAN), shards(candidate), "-t", "t.yaml")
    assert [finding[:2] for finding in findings] == [("layers.0.mlp", "exceeds-tolerance")]


def test_nan_in_every_element_on_both_sides_proves_nothing(check):
    tensors = changed(model(), "layers.0.mlp", ..., NAN)
    report, findings = check(tensors, shards(tensors), "-t", "t.yaml", "--strict")
    assert findings == [("layers.0.mlp", "empty", LAYER + "no element is finite")]
    assert counts(report) == (4, 3, 0, 1, 0)


def test_a_run_of_nothing_but_nan_is_not_the_same_as_another(check):
    tensors = [tensor.with_values(numpy.full_like(tensor.values, NAN)) for tensor in model()]
    report, findings = check(tensors, shards(tensors), "-t", "t.yaml", code=2)
    assert counts(report) == (4, 0, 0, 4, 0)


def test_another_model_size_is_a_finding_about_each_tensor(check):
    report, findings = check(model(8), shards(model(16)), "-t", "t.yaml")
    assert findings == [
        (
            "embedding",
            "shape-mismatch",
            "embedding output, iteration 0, micro-batch 0: "
            "the reference has float32 [4, 8], the candidate float32 [4, 16]",
        ),
        ("layers.0.mlp", "shape-mismatch", LAYER + "the reference has float32 [4, 8], the candidate float32 [4, 16]"),
        (
            "layers.0.mlp.weight",
            "shape-mismatch",
            "layers.0.mlp.weight main_grad, iteration 0: "
            "the reference has float32 [8, 8], the candidate float32 [16, 16]",
        ),
    ]
    assert counts(report) == (4, 1, 3, 0, 0)


def test_another_model_size_alone_is_different_though_nothing_could_be_compared(check):
    report, findings = check(model(8)[:1], shards(model(16)[:1]))
    assert [finding[:2] for finding in findings] == [("embedding", "shape-mismatch")]
    assert report["verdict"] == "different"


def test_shards_that_do_not_fit_together_are_a_finding(check):
    ranks = shards(model())
    ranks[1][0] = ranks[1][0].with_values(ranks[1][0].values[:3])
    report, findings = check(model(), ranks, "-t", "t.yaml")
    assert findings == [
        (
            "embedding",
            "shape-mismatch",
            "embedding output, iteration 0, micro-batch 0: shards do not "
            "fit together in dimension 0: [3, 4] on rank 1; [4, 4] on rank 0",
        )
    ]


def test_shards_of_unequal_width_are_put_together(check):
    ranks = shards(model())
    whole = model()[0].values
    ranks[0][0] = ranks[0][0].with_values(whole[:, :3])
    ranks[1][0] = ranks[1][0].with_values(whole[:, 3:])
    report, findings = check(model(), ranks, "-t", "t.yaml", code=0)
    assert counts(report) == (4, 4, 0, 0, 0)


def test_a_narrower_gradient_is_a_finding_where_the_annotations_do_not_declare_it(check):
    candidate = [bfloat16(t) if t.kind == "main_grad" else t for t in model()]
    report, findings = check(model(), shards(candidate), "-t", "t.yaml")
    assert findings == [
        (
            "layers.0.mlp.weight",
            "dtype-mismatch",
            "layers.0.mlp.weight main_grad, iteration 0: the reference has float32, the candidate bfloat16, which is "
            "narrower; where that is meant, write `parallelism: {narrower: [main_grad]}` in the annotations",
        )
    ]


def test_another_dtype_is_noted_and_judged_by_its_values(check, tmp_path):
    candidate = [bfloat16(tensor) for tensor in model()]
    with open(tmp_path / "a.yaml", "a") as file:
        file.write("parallelism: {narrower: [main_grad]}\n")
    report, findings = check(model(), shards(candidate), "-t", "t.yaml", code=0)
    assert report["notes"] == [
        "float32 in the reference is bfloat16 in the candidate: 4 tensors, such as "
        "layers.0.mlp.weight main_grad, iteration 0"
    ]


@pytest.mark.parametrize(("more", "expected"), [(0, []), (1, [("layers.0.mlp", "integer-differs")])])
def test_integers_instead_of_floats_are_compared_by_value(check, more, expected):
    def counted(tensor):
        return (
            replace(tensor, values=(tensor.values + more).astype("int32")) if tensor.name == "layers.0.mlp" else tensor
        )

    candidate = shards([counted(tensor) for tensor in model()])
    report, findings = check(model(), candidate, "-t", "t.yaml", code=1 if expected else 0)
    assert [finding[:2] for finding in findings] == expected
    assert report["notes"] == [
        "float32 in the reference is int32 in the candidate: 1 tensor, such as layers.0.mlp output, iteration 0, "
        "micro-batch 0"
    ]


def in_iteration(number, tensors):
    return [replace(tensor, iteration=number) for tensor in tensors]


def test_runs_with_no_iteration_in_common_are_refused(ttrace, reference, candidate):
    candidate(in_iteration(1, model()))
    assert ttrace.refuses(*CHECK) == (
        "reference and candidate: no tensor in common: the reference holds 4 tensors of iteration 0, micro-batch 0, "
        "such as embedding output, iteration 0, micro-batch 0; the candidate holds 4 tensors of iteration 1, "
        "micro-batch 0, such as embedding output, iteration 1, micro-batch 0; expected two runs of one model, with "
        "the same names and iterations"
    )


def test_an_iteration_that_one_side_lacks_is_missing(ttrace, tmp_path, candidate):
    record_run(tmp_path / "reference", [model() + in_iteration(1, model())])
    candidate()
    report = ttrace.reports(*CHECK, "-t", "t.yaml", code=1)
    assert report.startswith("different\nfirst missing: all of iteration 1 (4 tensors): not in the candidate\n")
    assert report.endswith("4 compared: 4 pass, 0 fail, 0 untrusted; 4 missing\n")


def test_only_that_matches_nothing_is_refused(ttrace, reference, candidate):
    candidate()
    # `*` stands for one component of a name; `**` for any number.
    for pattern in ("decoder", "layers.*", "layer*"):
        assert ttrace.refuses(*CHECK, "--only", pattern) == (
            f"--only '{pattern}': no tensor's name matches; expected a name, what follows one of its dots, or a glob"
        )


@pytest.mark.parametrize("rank, columns", [(0, "[0:4, 0:4]"), (1, "[0:4, 4:8]")])
def test_a_missing_rank_is_a_finding_and_so_is_all_that_it_held(ttrace, reference, candidate, rank, columns):
    (candidate() / f"rank-0000{rank}.h5").unlink()
    report, findings = read(ttrace.reports(*CHECK, "--json", "-", code=2))
    assert report["verdict"] == "could-not-look"
    assert findings[:2] == [
        ("", "missing-rank", f"rank {rank} of 2 left no file in candidate"),
        (
            "embedding",
            "omission",
            "embedding output, iteration 0, micro-batch 0: "
            f"not there: {columns} of rank {rank} (tp={rank}, its file is missing)",
        ),
    ]
    assert [name for name, reason, _ in findings[2:] if reason == "omission"] == [
        "layers.0.mlp",
        "loss",
        "layers.0.mlp.weight",
    ]


def test_a_rank_that_is_there_twice_is_a_finding(ttrace, reference, candidate):
    directory = candidate()
    shutil.copy(directory / "rank-00001.h5", directory / "rank-00002.h5")
    report, findings = read(ttrace.reports(*CHECK, "--json", "-", code=1))
    assert findings == [
        (
            "",
            "duplicate-rank",
            "rank 1 appears twice, in candidate/rank-00001.h5 and in "
            "candidate/rank-00002.h5: two processes took themselves for the same rank",
        )
    ]
    assert report["counts"]["pass"] == 4


def recorded_and_killed(directory, tensors):
    """Rank 1 records these and is killed before it can close its file."""
    if (pid := os.fork()) == 0:
        recorder = Recorder(directory, rank=1, world_size=2, axes="tp=2", run_id="candidate")
        for tensor in tensors:
            recorder.record(tensor)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def closed_as_incomplete(directory, tensors):
    record_rank(directory, tensors, complete=False, rank=1, world_size=2, axes="tp=2", run_id="candidate")


@pytest.mark.parametrize("end", [recorded_and_killed, closed_as_incomplete])
def test_what_a_rank_recorded_before_it_died_is_compared(check, tmp_path, end):
    ranks = shards(model())
    record_rank(tmp_path / "candidate", ranks[0], rank=0, world_size=2, axes="tp=2", run_id="candidate")
    end(tmp_path / "candidate", ranks[1][:2])
    report, findings = check(model(), None, code=2)
    assert findings == [
        ("", "incomplete-rank", "rank 1 did not finish: no completion mark; only what it recorded until then is there"),
        (
            "loss",
            "omission",
            "loss scalar, iteration 0, micro-batch 0: not there: [] of rank 1 (tp=1, its file is incomplete)",
        ),
        (
            "layers.0.mlp.weight",
            "omission",
            "layers.0.mlp.weight main_grad, iteration 0: not there: [4:8, 0:8] of "
            "rank 1 (tp=1, its file is incomplete)",
        ),
    ]
    assert counts(report) == (2, 2, 0, 0, 3)


@pytest.mark.parametrize("end", ["killed", "absent", "whole"])
def test_a_broken_rank_is_said_before_what_the_check_lacks(ttrace, tmp_path, end):
    (embedding,) = (tensor for tensor in model() if tensor.name == "embedding")
    reference = [replace(embedding, name=f"layers.{layer}") for layer in range(40)]
    half = [replace(tensor, values=tensor.values[:, :2] + 1) for tensor in reference]
    record_run(tmp_path / "reference", [reference])
    record_rank(tmp_path / "candidate", half, rank=0, world_size=2, axes="tp=2", run_id="candidate")
    if end != "absent":
        run = {"rank": 1, "world_size": 2, "axes": "tp=2", "run_id": "candidate"}
        record_rank(tmp_path / "candidate", half, complete=end == "whole", **run)
    text = ttrace.reports(*CHECK[: CHECK.index("-a")], code=2)
    if end == "whole":  # what is lacking is all that there is to say
        assert text.startswith("could-not-look: 40 tensors differ, and may be right")
    else:
        broken = "rank 1 did not finish" if end == "killed" else "rank 1 of 2 left no file"
        assert text.startswith(f"could-not-look: the candidate is not whole\nfirst: {broken}")
        assert "\nnext: " not in text  # annotations would not make it whole


def test_a_rank_that_recorded_all_but_did_not_finish_is_a_finding(check, tmp_path):
    ranks = shards(model())
    record_rank(tmp_path / "candidate", ranks[0], rank=0, world_size=2, axes="tp=2", run_id="candidate")
    recorded_and_killed(tmp_path / "candidate", ranks[1])
    report, findings = check(model(), None, code=2)
    assert [finding[1] for finding in findings] == ["incomplete-rank"]
    assert counts(report) == (4, 4, 0, 0, 1)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_candidate_that_is_not_whole_is_different_only_where_what_is_there_is_wrong(check, tmp_path, wrong):
    ranks = shards(changed(model(), "layers.0.mlp", (0, 0), 99) if wrong else model())
    record_rank(tmp_path / "candidate", ranks[0], rank=0, world_size=2, axes="tp=2", run_id="candidate")
    recorded_and_killed(tmp_path / "candidate", ranks[1])
    report, findings = check(model(), None, code=1 if wrong else 2)
    assert report["verdict"] == ("different" if wrong else "could-not-look")
    assert findings[0][1] == "incomplete-rank"
    assert [name for name, *_ in findings[1:]] == (["layers.0.mlp"] if wrong else [])


def test_an_incomplete_reference_is_refused(ttrace, tmp_path, candidate):
    record_rank(tmp_path / "reference", model(), complete=False, run_id="reference")
    candidate()
    assert ttrace.refuses(*CHECK) == (
        "reference: rank 0 did not finish: no completion mark; only what it recorded until then is there; "
        "expected a whole trace"
    )


def test_a_rank_that_died_and_lost_its_journal_is_refused(ttrace, reference, tmp_path):
    ranks = shards(model())
    record_rank(tmp_path / "candidate", ranks[0], rank=0, world_size=2, axes="tp=2", run_id="candidate")
    recorded_and_killed(tmp_path / "candidate", ranks[1])
    (tmp_path / "candidate" / "rank-00001.journal").unlink()
    assert ttrace.refuses(*CHECK) == "candidate/rank-00001.h5: not an HDF5 file; expected one written by ttrace"
