"""A trainer against engines: the same sequences in other batches, by other implementations, forward only. Each engine
has a wrong twin, which is different at the tensor that is wrong first."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from sweeps import warm

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-transformers" / "bin" / "python"
WITH_ONNX = ROOT / ".venv-transformers-onnx" / "bin" / "python"
PROGRAM = ROOT / "tests" / "frameworks" / "programs" / "rollout.py"
TTRACE = os.environ.get("TTRACE_PROGRAM", str(ROOT / "build" / "bin" / "ttrace"))

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not PYTHON.exists(), reason="transformers is not installed; tools/frameworks/run --only transformers does it"
    ),
]


@pytest.fixture(scope="module", autouse=True)
def warm_programs():
    with warm.server(PYTHON):
        yield


def ttrace(*arguments, mistake=""):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MISTAKE=mistake)
    command = [TTRACE, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=ROOT)


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """check(family, engine, mistake, *options) -> exit code, output, report of the engine against the trainer, which
    pads on the right and computes attention eagerly"""
    directory = tmp_path_factory.mktemp("rollout")

    def collected(family, *words, mistake=""):
        trace = directory / "-".join((family, *words, mistake))
        if not trace.exists():
            program = [PROGRAM, family, *words]
            command = [WITH_ONNX, *program] if "onnx" in words else warm.command(*program, python=PYTHON)
            process = ttrace("collect", "--no-grad", "-o", trace, "--", *command, mistake=mistake)
            assert process.returncode == 0, process.stderr
        return trace

    def tolerances(family, trainer):
        path = directory / f"{family}.yaml"
        if not path.exists():
            command = ["--", *warm.command(PROGRAM, family, "right", python=PYTHON)]
            process = ttrace("estimate-tolerance", "-o", path, "--reference", trainer, *command)
            assert process.returncode == 0, process.stderr
        return path

    def check(family, engine, mistake="", *options):
        trainer = collected(family, "right")
        report = directory / "report.json"
        sides = ["--reference", trainer, "--candidate", collected(family, *engine.split(), mistake=mistake)]
        words = ["--sequences", "auto", "-t", tolerances(family, trainer), "--json", report, *options]
        process = ttrace("check", *sides, *words)
        return process.returncode, process.stdout + process.stderr, json.loads(report.read_text())

    return check


@pytest.mark.parametrize(
    ("family", "engine"),
    [
        ("llama", "left sdpa"),
        ("llama", "packed sdpa"),
        ("llama", "single"),
        ("llama", "decode sdpa"),
        ("gemma2", "left"),
        ("gemma2", "packed"),
    ],
)
def test_a_right_engine_is_same_however_it_batches(check, family, engine):
    code, text, report = check(family, engine)
    assert (code, report["verdict"]) == (0, "same"), text
    assert report["counts"]["pass"] > 90, text
    assert "of what both traces hold" not in text, text
    notes = [note for note in report["notes"] if note.startswith("log-probabilities log_probs output")]
    assert len(notes) == 1 and "0 of 23 ratios are clipped at 0.2" in notes[0], text


onnx = pytest.param(
    "onnx",
    marks=pytest.mark.skipif(
        not WITH_ONNX.exists(),
        reason="ONNX Runtime is not installed; tools/venv .venv-transformers-onnx "
        "tools/frameworks/transformers/requirements-onnx.txt .venv does it",
    ),
)


@pytest.mark.parametrize("implementation", ["export", onnx])
def test_a_graph_without_modules_is_compared_at_its_ends(check, implementation):
    ends = ("--only", "(model)")
    code, text, report = check("llama", f"right {implementation}", "", *ends)
    assert (code, report["verdict"]) == (0, "same"), text
    code, text, report = check("llama", f"right {implementation}", "temperature", *ends)
    assert (code, report["first_wrong"]["name"]) == (1, "(model)"), text
    assert report["first_wrong"]["kind"] == "output", text


@pytest.mark.parametrize(
    ("family", "engine", "mistake", "first"),
    [
        ("llama", "left sdpa", "rope_base", "model.model.rotary_emb.inv_freq buffer"),
        ("llama", "packed sdpa", "eps", "model.model.layers.0.input_layernorm output"),
        ("llama", "decode sdpa", "temperature", "log_probs output"),
        ("llama", "packed sdpa", "packed_positions", "(model):position_ids input"),
        ("llama", "left sdpa", "head_in_bfloat16", "model.lm_head output"),
        ("gemma2", "left", "head_not_tied", "model.lm_head.weight param"),
        ("gemma2", "packed", "soft_cap", "model:logits output"),
    ],
)
def test_a_wrong_engine_is_different_where_it_is_wrong(check, family, engine, mistake, first):
    code, text, report = check(family, engine, mistake)
    assert (code, report["verdict"]) == (1, "different"), text
    assert f"{report['first_wrong']['name']} {report['first_wrong']['kind']}" == first, text


def test_what_a_temperature_does_is_said_in_the_words_of_those_who_sample(check):
    _, text, _ = check("llama", "decode sdpa", "temperature")
    clipped = text.split("KL k1")[1].split("ratios are clipped")[0].split(";")[1].split()
    assert int(clipped[0]) > 0 and clipped[2] == "23", text
