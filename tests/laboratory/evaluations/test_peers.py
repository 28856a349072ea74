"""The peers' rules are theirs: held against torch, on tensors that ttrace puts together."""

import math
import subprocess

import numpy
import pytest
import torch

from evaluations import peers
from evaluations.bench import identity
from traces import Tensor, bfloat16, record_run

ANNOTATIONS = "weight:\n  tp_dim: 0\n"
COPIES = "another:\n  tp_dim: 0\n"


@pytest.fixture
def compared(tmp_path):
    """compared(reference, candidate): the line of compare_peers about a tensor that the candidate has on 2 ranks."""

    def compare(reference, candidate, split=True):
        parts = numpy.split(candidate.values, 2) if split else candidate.values
        runs = {"reference": [[reference]], "candidate": [[candidate.with_values(part)] for part in parts]}
        for name, ranks in runs.items():
            record_run(tmp_path / name / "trace", ranks, axes=f"tp={len(ranks)}")
            (tmp_path / name / "annotations.yaml").write_text(ANNOTATIONS if split else COPIES)
        (row,) = peers.compare(tmp_path / "reference", tmp_path / "candidate")
        return row

    return compare


def weight(values):
    return Tensor("weight", numpy.asarray(values, "float32"), kind="param", microbatch=-1)


def noisy(values, size, generator):
    return values * (1 + size * generator.standard_normal(values.shape)).astype("float32")


@pytest.mark.parametrize("size", [1e-6, 1e-4, 0.03, 0.3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_allclose_is_torchs(compared, size, dtype):
    generator = numpy.random.default_rng(7)
    reference = generator.standard_normal((16, 12)).astype("float32") * 10.0 ** generator.integers(-9, 2, (16, 12))
    candidate = noisy(reference.astype("float32"), size, generator)
    candidate[0, :3] = reference[1, :3] = math.nan
    candidate[2, :3] = reference[2, :2] = math.inf
    pair = [weight(reference), weight(candidate)]
    if dtype == "bfloat16":
        pair = [bfloat16(tensor.with_values(torch.tensor(tensor.values).bfloat16().float().numpy())) for tensor in pair]
    row = compared(*pair)
    y, x = (
        torch.tensor(tensor.values) if dtype == "float32" else torch.tensor(tensor.values).view(torch.bfloat16)
        for tensor in pair
    )
    x, y = x.double(), y.double()
    for i, (atol, rtol) in enumerate(peers.ALLCLOSE):
        outside = (~torch.isclose(x, y, float(rtol), float(atol))).sum()
        assert int(row[f"outside_{i}"]) == outside > 0
        assert not torch.allclose(x, y, float(rtol), float(atol))


def test_equal_tensors_are_close_by_every_rule(compared):
    row = compared(weight(numpy.arange(8).reshape(4, 2)), weight(numpy.arange(8).reshape(4, 2)))
    assert not any(rule.violated(row, "bf16") for rule in peers.RULES)


def test_the_relative_difference_is_sglangs(compared):
    generator = numpy.random.default_rng(7)
    reference = generator.standard_normal((4, 6)).astype("float32")
    candidate = noisy(reference, 0.1, generator)
    x, y = torch.tensor(candidate).double(), torch.tensor(reference).double()
    row = compared(weight(reference), weight(candidate))
    expected = 1 - 2 * (x * y).sum() / (x * x + y * y).sum()
    assert peers.sglang_difference(row) == pytest.approx(expected.item(), rel=1e-9)
    assert peers.relative_error(row) == pytest.approx(((x - y).norm() / y.norm()).item(), rel=1e-12)


def test_the_bound_is_that_of_megatrons_gradient_test():
    assert peers.megatron_bound("bf16") == 4 * 1.03**33 * torch.finfo(torch.bfloat16).eps
    assert peers.megatron_bound("fp32") == 4 * 1.03**33 * torch.finfo(torch.float32).eps


def test_nan_violates_every_rule_that_looks_at_it(compared):
    values = numpy.ones((4, 2))
    broken = values.copy()
    broken[3, 1] = math.nan
    row = {**compared(weight(values), weight(broken)), "kind": "main_grad"}
    assert [rule.name for rule in peers.RULES if not rule.violated(row, "bf16")] == []


def test_the_worst_copy_counts(compared):
    values = numpy.ones((4, 2), "float32")
    row = compared(weight(values), weight(numpy.stack([values, 3 * values])), split=False)
    assert identity(row) == ("weight", "param", 0, None, "forward")
    assert (float(row["difference_square"]), int(row["outside_3"])) == (32, 8)


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "expected REFERENCE ITS-ANNOTATIONS CANDIDATE"),
        (["nowhere", "a.yaml", "nowhere", "a.yaml"], "nowhere"),
        (["reference", "a.yaml", "reference", "a.yaml", "1e-5"], "'1e-5': no pair of bounds; expected ATOL:RTOL"),
        (["reference", "a.yaml", "reference", "a.yaml", "nan:1"], "'nan:1': no pair of bounds"),
        (["reference", "a.yaml", "cut", "a.yaml"], "rank-00000.h5"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(tmp_path, words, said):
    record_run(tmp_path / "reference", [[weight(numpy.ones((4, 2)))]])
    (tmp_path / "a.yaml").write_text(ANNOTATIONS)
    whole = (tmp_path / "reference" / "rank-00000.h5").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "rank-00000.h5").write_bytes(whole[: len(whole) // 2])
    program = peers.BUILD / "evaluations" / "compare_peers"
    result = subprocess.run([program, *words], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("compare_peers: error: ") and result.stderr.count("\n") == 1
    assert said in result.stderr
