"""Megatron-core's mixture of experts, unchanged and with bugs: what is inside the experts is compared."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "collect"))
from rank_file import RankFile  # noqa: E402

from sweeps import warm  # noqa: E402

TTRACE = os.environ["TTRACE_PROGRAM"]
PYTHON = ROOT / ".venv-megatron/bin/python"
TRAIN = ROOT / "tools/frameworks/megatron/train.py"
WITH_BUG = Path(__file__).parent / "programs/megatron_with_bug.py"
LAYERS, MICRO_BATCHES = 2, 2
MODEL = f"--experts 4 --layers {LAYERS} --hidden 32 --heads 4 --sequence 16 --micro-batches {MICRO_BATCHES}".split()
EP2, TP2_EP2 = ["--ep", "2"], ["--tp", "2", "--sp", "--ep", "2", "--etp", "1"]

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not (PYTHON.exists() and TRAIN.exists()), reason="no .venv-megatron: tools/frameworks/run makes it"
    ),
]


@pytest.fixture(scope="module", autouse=True)
def warm_programs():
    with warm.server(PYTHON):
        yield


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
    command = ["--", *warm.command(TRAIN, *MODEL, python=PYTHON)]
    ttrace("collect", "-o", directory / "trace", *command)
    tolerance = directory / "tolerance.yaml"
    ttrace("estimate-tolerance", "-a", "megatron_moe", "-o", tolerance, "--reference", directory / "trace", *command)
    return directory / "trace", tolerance


def check(reference, directory, program, options, expected):
    """The report of `program`'s run on two ranks."""
    command = warm.command(*program, *MODEL, *options, ranks=2, python=PYTHON)
    ttrace("collect", "-o", directory / "trace", "--", *command)
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


GROUPS = {"moe_router_num_groups": 4, "moe_router_group_topk": 2}
SIGMOID = {"moe_router_score_function": "sigmoid"}
BIAS = {**SIGMOID, "moe_router_enable_expert_bias": "true"}


@pytest.mark.parametrize(
    ("config", "recorded"),
    [
        ({}, set()),
        (SIGMOID, set()),
        (GROUPS, {"groups"}),
        ({**GROUPS, "moe_router_pre_softmax": "true"}, {"groups", "scores"}),
        (BIAS, {"scores"}),
        ({**GROUPS, **BIAS}, {"groups", "scores"}),
        ({**GROUPS, **SIGMOID, "moe_expert_capacity_factor": 1.0}, set()),  # drops tokens after its choice
    ],
    ids=["plain", "sigmoid", "groups", "groups-of-probabilities", "bias", "groups-with-bias", "capacity"],
)
def test_what_is_recorded_of_a_choice_leads_to_it(config, recorded, tmp_path):
    top_k, experts = 4, 8
    model = [*MODEL, "--layers", 1, "--experts", experts, "--top-k", top_k]
    options = [part for name, value in config.items() for part in ("--config", f"{name}={value}")]
    ttrace("collect", "-o", tmp_path / "trace", "--", *warm.command(TRAIN, *model, *options, python=PYTHON))
    tensors = RankFile(tmp_path / "trace/rank-00000.h5").tensors
    of_router = {
        name.split(":")[1]: torch.tensor(values)
        for (kind, name, microbatch), values in tensors.items()
        if kind == "output" and "mlp.router:" in name and microbatch == 0
    }
    assert of_router.keys() & {"groups", "scores"} == recorded
    if not recorded:
        return
    scores = of_router.get("scores", of_router["logits"]).reshape(-1, experts)
    groups, chosen, counted = of_router.get("groups", torch.tensor([1, 1, 1])).tolist()
    sums = scores.view(-1, groups, experts // groups).topk(counted).values.sum(-1)
    allowed = torch.zeros_like(sums).scatter(1, sums.topk(chosen).indices, 1).repeat_interleave(experts // groups, 1)
    choice = scores.masked_fill(allowed == 0, -torch.inf).topk(top_k).indices
    assert torch.equal(torch.zeros_like(scores).scatter(1, choice, 1).bool(), of_router["1"].bool())
