"""`ttrace show`: logical tensors as text, beside the reference's."""

import re

import numpy
import pytest
from conftest import changed, model, shards

from traces import Tensor, record_run

SHOW = ("show", "candidate")


@pytest.fixture
def wrong(tmp_path, reference):
    """A candidate of which one weight on rank 1 is 6 where it should be 1."""
    return record_run(
        tmp_path / "candidate", shards(changed(model(), "layers.0.mlp.weight", (7, 0), 6)), axes="tp=2", run_id="other"
    )


def test_a_slice_is_shown_beside_the_reference_with_the_rank_that_holds_it(ttrace, wrong):
    shown = ttrace.reports(*SHOW, "mlp.weight", "--reference", "reference", "-a", "a.yaml", "--slice", "6:, :3", code=0)
    assert (
        shown
        == """\
layers.0.mlp.weight main_grad, iteration 0
candidate: [6:8, 0:3] of [8, 8], float32; norm 10.149, from 1 to 7
[[7 1 2]
 [6 2 3]]
reference: [6:8, 0:3] of [8, 8], float32; norm 8.2462, from 1 to 7
[[7 1 2]
 [1 2 3]]
candidate - reference: relative error 0.606; the largest is 5 at [7, 0]: 6, reference 1
[[0 0 0]
 [5 0 0]]
held by
    rank  coordinates  local       logical     replica  term
    1     tp=1         [0:4, 0:8]  [4:8, 0:8]  0        0
"""
    )


def test_equal_tensors_are_said_to_be_equal(ttrace, wrong):
    shown = ttrace.reports(*SHOW, "embedding", "--reference", "reference", "-a", "a.yaml", code=0)
    assert "candidate - reference: relative error 0: equal\n" in shown


def test_what_was_recorded_twice_is_shown_once_unless_it_is_named(ttrace, tmp_path):
    tensors = [
        Tensor("layer", numpy.full((2,), 10 * iteration + microbatch, "float32"), "output", iteration, microbatch)
        for iteration in (3, 4)
        for microbatch in (0, 1)
    ]
    record_run(tmp_path / "candidate", [tensors])

    def headers(*words):
        shown = ttrace.reports(*SHOW, "layer", *words, code=0)
        return re.findall(r"^layer output, (.*)$", shown, re.MULTILINE), re.findall(r"^\[(.*)\]$", shown, re.MULTILINE)

    assert headers() == (["iteration 3, micro-batch 0"], ["30 30"])
    assert headers("--iteration", "4") == (["iteration 4, micro-batch 0"], ["40 40"])
    assert headers("--microbatch", "1", "--iteration", "4") == (["iteration 4, micro-batch 1"], ["41 41"])
    assert ttrace.refuses(*SHOW, "layer", "--iteration", "5").startswith(
        "'layer': not of that kind, iteration and micro-batch; expected one of layer output, iteration 3, micro-batch 0"
    )


def test_a_large_tensor_is_shortened_and_what_is_shown_are_its_values(ttrace, tmp_path):
    values = numpy.random.default_rng(0).normal(size=(40, 3, 50)).astype("float32")
    record_run(tmp_path / "candidate", [[Tensor("layer", values)]])
    lines = ttrace.reports(*SHOW, "layer", code=0).splitlines()
    assert all(len(line) <= 80 for line in lines) and "[[[" in lines[2] and " ..." in lines
    numbers = [float(word) for word in re.findall(r"-?\d[\d.e+-]*", "\n".join(lines[2 : lines.index("held by")]))]
    kept = numpy.r_[0:3, 37:40]
    expected = values[kept][:, :, numpy.r_[0:3, 47:50]].ravel()
    numpy.testing.assert_allclose(numbers, expected, rtol=1e-4)


def test_what_is_not_finite_is_counted(ttrace, tmp_path):
    record_run(tmp_path / "candidate", [[Tensor("layer", numpy.array([1, numpy.nan, numpy.inf], "float32"))]])
    assert "norm 1, from 1 to 1; 1 NaN; 1 Inf\n[  1 nan inf]\n" in ttrace.reports(*SHOW, "layer", code=0)


@pytest.mark.parametrize("slice", ["0:9", "4", "0,0,0", "x", "", "2:1", "1,", "99999999999999999999"])
def test_a_slice_outside_of_the_tensor_is_refused(ttrace, tmp_path, slice):
    record_run(tmp_path / "candidate", [[Tensor("layer", numpy.zeros((4, 2), "float32"))]])
    if slice == "":
        ttrace.reports(*SHOW, "layer", "--slice", slice, code=0)
    else:
        assert ttrace.refuses(*SHOW, "layer", "--slice", slice).startswith(f"--slice '{slice}': ")


def test_a_tensor_that_does_not_fit_together_says_why(ttrace, tmp_path, reference):
    tensors = shards(model())
    del tensors[1][3]
    record_run(tmp_path / "candidate", tensors, axes="tp=2")
    message = ttrace.refuses(*SHOW, "mlp.weight", "--reference", "reference", "-a", "a.yaml")
    assert message.startswith("layers.0.mlp.weight main_grad, iteration 0: ")
    assert ttrace.refuses(*SHOW, "mpl.weight").startswith("pattern 'mpl.weight': no tensor's name matches")
