"""A factor that is in every layer's gradient of one weight, and too near to 1 to be seen in any of them."""

import json
import re

import numpy
import pytest
from program import Program

from traces import Tensor, record_run

LAYERS, FACTOR = 8, 1 + 4e-4
NAMES = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")


def gradients(seed=None, factor=1.0):
    """Those of the reference; with a seed, of a run that scales all of them by one number near 1, and rounds."""
    chance = numpy.random.default_rng(seed)
    common = 0 if seed is None else 1.5e-4 * (-1) ** seed
    tensors = []
    for layer in range(LAYERS):
        for i, name in enumerate(NAMES):
            exact = numpy.random.default_rng([layer, i]).standard_normal((32, 32))
            noise = 0 if seed is None else 1e-3 * chance.standard_normal((32, 32))
            scale = factor if name == "mlp.fc1" else 1.0
            values = (exact * (1 + common) * scale + noise).astype("float32")
            tensors.append(Tensor(f"layers.{layer}.{name}.weight", values, "param_grad"))
    return tensors


@pytest.fixture
def ttrace(tmp_path):
    program = Program(tmp_path)
    record_run(tmp_path / "reference", [gradients()], run_id="reference")
    runs = []
    for seed in (1, 2, 3):
        provenance = json.dumps({"perturb_seed": seed})
        record_run(tmp_path / f"p{seed}", [gradients(seed)], provenance=provenance, run_id=f"p{seed}")
        runs.append(f"p{seed}")
    program.reports("estimate-tolerance", "-o", "t.yaml", "--reference", "reference", "--perturbed", *runs, code=0)
    return program


def check(ttrace, code):
    return ttrace.reports(
        "check", "--reference", "reference", "--candidate", "candidate", "-t", "t.yaml", "--json", "r.json", code=code
    )


def test_it_is_found(ttrace, tmp_path):
    record_run(tmp_path / "candidate", [gradients(9, FACTOR)], run_id="wrong")
    text = check(ttrace, 1)
    assert re.search(r"together the 8 tensors layers\.#\.mlp\.fc1\.weight param_grad are 1\.000[34]\d* times", text)
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["counts"]["fail"] == 1
    (finding,) = report["findings"]
    assert (finding["name"], finding["reason"]) == ("layers.0.mlp.fc1.weight", "exceeds-tolerance")
    assert finding["exceeded"] == "coherence"
    assert finding["statistics"]["coherence"]["measured"] == pytest.approx(4e-4, rel=0.1)
    assert finding["ratio"] > 1
    (cause,) = report["roots"]
    assert "the same small factor is in every layer" in cause["sentence"]


def test_its_correct_twin_passes(ttrace, tmp_path):
    record_run(tmp_path / "candidate", [gradients(9)], run_id="right")
    assert check(ttrace, 0).startswith("same\n")
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["tests"] == LAYERS * len(NAMES) * 4 + len(NAMES)  # each tensor's four, and each group's


def test_tolerances_that_leave_a_group_out_are_refused(ttrace, tmp_path):
    record_run(tmp_path / "candidate", [gradients(9)], run_id="right")
    lines = (tmp_path / "t.yaml").read_text().splitlines()
    kept = [line for line in lines if "#.mlp.fc1" not in line and not line.startswith("seal:")]
    (tmp_path / "t.yaml").write_text("\n".join(kept) + "\n")
    refusal = ttrace.refuses("check", "--reference", "reference", "--candidate", "candidate", "-t", "t.yaml")
    assert "does not say what the coherence of layers.#.mlp.fc1.weight param_grad may be" in refusal
