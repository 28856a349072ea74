"""Annotations, written by hand or drafted, must not make a wrong program look right; and a correct one must pass."""

import json

import numpy
import pytest

from models import model, shards
from traces import Tensor, record_run

CHECK = ("check", "--reference", "reference", "--candidate", "candidate")


def record(directory, reference, ranks, axes):
    record_run(directory / "reference", [reference])
    record_run(directory / "candidate", ranks, axes=axes)


def gathered_program(factor, main_factor):
    """The gradients of a program whose gather multiplies them by `factor`, and the optimizer's by `main_factor`."""
    generator = numpy.random.default_rng(0)
    names = [f"layers.{index}.mlp" for index in range(3)]
    values = {name: generator.normal(size=(4, 6)).astype("float32") for name in names}
    weights = {name: generator.normal(size=(6, 6)).astype("float32") for name in names}

    def tensors(by, main_by):
        for name in names:
            yield Tensor(name, values[name])
            yield Tensor(name, values[name][::-1] * numpy.float32(by), kind="grad_output")
            yield Tensor(f"{name}.weight", weights[name] * numpy.float32(main_by), kind="main_grad", microbatch=-1)

    return list(tensors(1, 1)), list(tensors(factor, main_factor))


def test_a_draft_does_not_fit_a_gather_that_sums_gradients_twice(ttrace):
    reference, wrong = gathered_program(2, 2)
    record(ttrace.directory, reference, [wrong, wrong], "tp=2")
    ttrace.reports("annotate", "candidate", "--reference", "reference", "-o", "draft.yaml", code=0)
    report = ttrace.reports(*CHECK, "-a", "draft.yaml", code=1)
    assert "first wrong tensor: layers.0.mlp grad_output" in report
    note = (
        "draft.yaml:7: 'loss_scale: tp' is a guess that does not count; with it 3 of 6 wrong tensors would be right: "
        "take its #? away only where the program means it so"
    )
    assert note in " ".join(report.split())
    assert note in json.loads(ttrace.reports(*CHECK, "-a", "draft.yaml", "--json", "-", code=1))["notes"]


def test_a_draft_of_a_program_that_scales_its_loss_passes(ttrace):
    """The twin: the same factor, which the optimizer's gradients lack."""
    reference, right = gathered_program(2, 1)
    record(ttrace.directory, reference, [right, right], "tp=2")
    ttrace.reports("annotate", "candidate", "--reference", "reference", "-o", "draft.yaml", code=0)
    assert "  loss_scale: tp  # certain on tp=2: " in (ttrace.directory / "draft.yaml").read_text()
    assert "guess" not in ttrace.reports(*CHECK, "-a", "draft.yaml", code=0)


def projection(returns_whole):
    """A projection whose ranks hold terms, in an MLP that adds them up, or forgets to."""
    generator = numpy.random.default_rng(1)
    # Multiples of four, whose terms are exact.
    out, around = (4 * generator.integers(1, 99, size=(4, 6)).astype("float32") for _ in range(2))
    reference = [Tensor("mlp.proj", out), Tensor("mlp", around)]

    def terms(values):
        return [values * numpy.float32(share) for share in (0.25, 0.75)]

    ranks = [
        [Tensor("mlp.proj", part), Tensor("mlp", around if returns_whole else whole)]
        for part, whole in zip(terms(out), terms(around), strict=True)
    ]
    return reference, ranks


@pytest.mark.parametrize("returns_whole", [True, False], ids=["made", "forgotten"])
def test_a_draft_adds_up_what_the_program_adds_up(ttrace, returns_whole):
    reference, ranks = projection(returns_whole)
    record(ttrace.directory, reference, ranks, "tp=2")
    ttrace.reports("annotate", "candidate", "--reference", "reference", "-o", "draft.yaml", code=0)
    report = " ".join(ttrace.reports(*CHECK, "-a", "draft.yaml", code=0 if returns_whole else 2).split())
    # No gradient tells whether the terms were to be added up: nobody but the author does.
    assert ("question about 2 tensors: mlp.proj, output" in report) == (not returns_whole)
    assert ("says so: mlp.proj: {output: {tp: partial}}" in report) == (not returns_whole)


def forgotten_all_reduce():
    """The main gradients that each rank's optimizer uses are halves of the reference's."""
    halves = [t.with_values(t.values / 2) if t.kind == "main_grad" else t for t in model()]
    return [halves, halves]


def test_an_annotation_that_blesses_a_forgotten_all_reduce_is_named(ttrace):
    record(ttrace.directory, model(), forgotten_all_reduce(), "tp=2")
    (ttrace.directory / "a.yaml").write_text("layers.*.mlp.weight:\n  tp: replicate\n  main_grad: {tp: partial}\n")
    note = (
        "a.yaml:3: 'layers.*.mlp.weight': main_grad: tp: partial adds up what ranks hold of 1 tensor (main_grad), "
        "which each rank's optimizer uses as it holds them: a forgotten all-reduce looks the same"
    )
    report = ttrace.reports(*CHECK, "-a", "a.yaml", code=0)
    assert note in " ".join(report.split())
    assert note in json.loads(ttrace.reports(*CHECK, "-a", "a.yaml", "--json", "-", code=0))["notes"]


def test_the_forgotten_all_reduce_fails_without_that_annotation(ttrace):
    record(ttrace.directory, model(), forgotten_all_reduce(), "tp=2")
    (ttrace.directory / "a.yaml").write_text("layers.*.mlp.weight:\n  tp: replicate\n")
    assert "looks the same" not in ttrace.reports(*CHECK, "-a", "a.yaml", code=1)


@pytest.mark.parametrize("has_main_grad", [True, False])
def test_a_sum_of_what_backward_left_needs_a_main_gradient_that_shows_it(ttrace, has_main_grad):
    gradient = numpy.arange(1, 9, dtype="float32")
    main = [Tensor("norm.weight", gradient, kind="main_grad", microbatch=-1)] if has_main_grad else []
    whole, half = (Tensor("norm.weight", values, kind="param_grad") for values in (gradient, gradient / 2))
    record(ttrace.directory, [whole, *main], [[half, *main], [half, *main]], "tp=2")
    (ttrace.directory / "a.yaml").write_text("norm.weight:\n  tp: replicate\n  param_grad: {tp: partial}\n")
    report = ttrace.reports(*CHECK, "-a", "a.yaml", code=0)
    named = "adds up what ranks hold of 1 tensor (param_grad), and no main gradient shows that the program does"
    assert (named in " ".join(report.split())) == (not has_main_grad)


def test_a_sum_over_an_axis_of_one_rank_adds_up_nothing(ttrace):
    record(ttrace.directory, model(), shards(model()), "tp=2")
    (ttrace.directory / "a.yaml").write_text(
        "embedding:\n  output: {tp_dim: 1}\nlayers.*.mlp.weight:\n  tp_dim: 0\n  cp: partial\n"
    )
    assert "looks the same" not in ttrace.reports(*CHECK, "-a", "a.yaml", code=0)
