"""Programs that compute in fp64, whose rounding is a thousand million times smaller."""

import json

import numpy
import pytest
import yaml
from program import Program

from traces import Tensor, record_run


@pytest.fixture
def in_fp64(tmp_path):
    """A program that computes in fp64, and one whose weight's gradient is off by 1e-9."""

    def gradients(seed=None, factor=1.0):
        exact = numpy.random.default_rng(1).standard_normal((64, 48))
        noise = 0 if seed is None else 1e-15 * numpy.random.default_rng(seed).standard_normal((64, 48))
        return [
            Tensor("mlp", exact * 2 + noise, "output"),
            Tensor("mlp.weight", (exact + noise) * factor, "param_grad"),
            Tensor("mlp.weight", (exact + noise) * factor, "main_grad", microbatch=-1),
        ]

    program = Program(tmp_path)
    words = dict(compute_dtype="float64")
    record_run(tmp_path / "reference", [gradients()], run_id="reference", **words)
    runs = [f"p{seed}" for seed in (1, 2, 3)]
    for seed, name in enumerate(runs, start=1):
        provenance = json.dumps({"perturb_seed": seed})
        record_run(tmp_path / name, [gradients(seed)], provenance=provenance, run_id=name, **words)
    program.reports("estimate-tolerance", "-o", "t.yaml", "--reference", "reference", "--perturbed", *runs, code=0)
    record_run(tmp_path / "right", [gradients(9)], run_id="right", **words)
    record_run(tmp_path / "wrong", [gradients(9, 1 + 1e-9)], run_id="wrong", **words)
    return program


@pytest.mark.parametrize(("candidate", "code"), [("right", 0), ("wrong", 1)])
def test_a_program_in_fp64_is_held_to_what_fp64_rounds(in_fp64, candidate, code):
    text = in_fp64.reports("check", "--reference", "reference", "--candidate", candidate, "-t", "t.yaml", code=code)
    assert ("mlp.weight param_grad" in text) == (candidate == "wrong")


def test_its_statistics_have_floors_of_fp64(in_fp64, tmp_path):
    tolerances = yaml.safe_load((tmp_path / "t.yaml").read_text())["tensors"]
    for kind in ("output", "param_grad"):
        for tolerance in tolerances[kind].values():
            assert 0 < tolerance["row"]["floor"] < 1e-13
