"""Megatron-core's mixture of experts, unchanged and with bugs: what is inside the experts is compared."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TTRACE = os.environ["TTRACE_PROGRAM"]
PYTHON = ROOT / ".venv-megatron/bin/python"
TRAIN = ROOT / "tools/frameworks/megatron/train.py"
WITH_BUG = Path(__file__).parent / "programs/megatron_with_bug.py"
LAYERS, MICRO_BATCHES = 2, 2
MODEL = f"--experts 4 --layers {LAYERS} --hidden 32 --heads 4 --sequence 16 --micro-batches {MICRO_BATCHES}".split()
EP2, TP2_EP2 = ["--ep", "2"], ["--tp", "2", "--sp", "--ep", "2", "--etp", "1"]

pytestmark = pytest.mark.skipif(
    not (PYTHON.exists() and TRAIN.exists()), reason="no .venv-megatron: tools/frameworks/run makes it"
)


def ttrace(*arguments, expected=0):
    run = subprocess.run(
        [TTRACE, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == expected, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Directories of the one process's trace and of its tolerances."""
    directory = tmp_path_factory.mktemp("reference")
    command = ["--", PYTHON, TRAIN, *MODEL]
    ttrace("collect", "-o", directory / "trace", *command)
    tolerance = directory / "tolerance.yaml"
    ttrace("estimate-tolerance", "-a", "megatron_moe", "-o", tolerance, "--reference", directory / "trace", *command)
    return directory / "trace", tolerance


def check(reference, directory, program, options, expected):
    """The report of `program`'s run on two ranks."""
    launch = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    ttrace("collect", "-o", directory / "trace", "--", *launch, *program, *MODEL, *options)
    trace, tolerance = reference
    arguments = ["--reference", trace, "--candidate", directory / "trace", "-a", "megatron_moe", "-t", tolerance]
    ttrace("check", *arguments, "--json", directory / "report.json", expected=expected)
    return json.loads((directory / "report.json").read_text())


@pytest.mark.parametrize("options", [EP2, [*TP2_EP2, "--dispatcher", "allgather"]], ids=["ep2", "tp2-ep2-allgather"])
def test_experts_on_two_ranks_are_the_same_and_compared_inside(options, reference, tmp_path):
    report = check(reference, tmp_path, [TRAIN], options, expected=0)
    assert report["counts"]["missing"] == report["counts"]["not_seen"] == 0
    # In each layer and micro-batch, where tokens go, how many and from whom: compared by which of them an expert got.
    assert report["waived"] == 3 * LAYERS * MICRO_BATCHES


BUGS = {
    # bug: the layout, the module where it is, the tensor's kind
    "unweighted": (EP2, "decoder.layers.0.mlp.experts:2", "input"),
    "shifted": (EP2, "decoder.layers.0.mlp.experts:0", "input"),
    "dropped": (EP2, "decoder.layers.0.mlp.experts.local_experts.3:0", "input"),
    "exchanged": (EP2, "decoder.layers.0.mlp.experts.local_experts.2:0", "input"),
    "auxiliary_scaled": (TP2_EP2, "decoder.layers.1.mlp.router:logits", "grad_output"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found_where_it_is(bug, reference, tmp_path):
    options, name, kind = BUGS[bug]
    root = check(reference, tmp_path, [WITH_BUG, bug], options, expected=1)["root_cause"]
    assert (root["name"], root["kind"]) == (name, kind)
    if bug == "dropped":
        assert "it should have got" in root["message"]
