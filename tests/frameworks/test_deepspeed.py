"""DeepSpeed's engine, unchanged: its partitions have their places in the plain model's parameters."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from sweeps import warm

ROOT = Path(__file__).resolve().parents[2]
TTRACE = os.environ["TTRACE_PROGRAM"]
PYTHON = ROOT / ".venv-deepspeed/bin/python"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason=f"no {PYTHON.relative_to(ROOT)}: tools/frameworks/run makes it"
)

# All numbers are small integers and halves, so that every sum is exact in any order.
PROGRAM = """
import os
import sys
os.environ["DS_ACCELERATOR"] = "cpu"
import torch
from torch import nn

def adapted(model, options):
    import deepspeed
    from deepspeed.runtime.zero import stage_1_and_2
    deepspeed.ops.__compatible_ops__ = {}
    deepspeed.comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    if "stale" in options:
        stage_1_and_2.all_gather_dp_groups = lambda **groups: None
    stage = next(int(option) for option in options if option.isdigit())
    return deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), config={
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4 // deepspeed.comm.get_world_size(),
        "gradient_clipping": 0.0,  # by default it clips to 1
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": stage, "stage3_param_persistence_threshold": 4, "round_robin_gradients": "in-turn" in options
        },
        "bf16": {"enabled": "overflow" in options, "check_grad_overflow": True},
    })[0]

options = sys.argv[1:]
model = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 3), nn.Linear(3, 1))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.arange(parameter.numel()).remainder(3).view_as(parameter) + 1)
batches = [torch.arange(10.0).view(2, 5).remainder(4) - step for step in range(4)]
if "plain" in options:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in batches:
        (model(batch).sum() / 4).backward()
    optimizer.step()
else:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    engine = adapted(model, options)
    for factor in (float("inf"), 1.0) if "overflow" in options else (1.0,):
        for batch in batches[rank::ranks]:
            engine.backward(engine(batch.to(next(model.parameters()).dtype)).sum() * factor)
            engine.step()
    torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module", autouse=True)
def warm_programs():
    with warm.server(PYTHON):
        yield


def ttrace(*arguments, expected=0):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([TTRACE, *map(str, arguments)], capture_output=True, text=True, timeout=300, env=environment)
    assert run.returncode == expected, run.stdout + run.stderr
    return run


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plain")
    (directory / "program.py").write_text(PROGRAM)
    (directory / "annotations.yaml").write_text("parallelism:\n  loss_scale: dp\n")
    ttrace("collect", "-o", directory / "trace", "--", *warm.command(directory / "program.py", "plain", python=PYTHON))
    return directory / "program.py"


def collect(program, directory, *options, ranks=2, iterations="0"):
    command = warm.command(warm.LAUNCH, ranks, program, *options, python=PYTHON)  # also one rank is told its number
    asked = ["--axes", f"dp={ranks}", "--iterations", iterations]
    return ttrace("collect", "-o", directory / "trace", *asked, "--", *command)


def check(program, directory, expected):
    """The report of what `collect` has left."""
    files = ["--reference", program.parent / "trace", "--candidate", directory / "trace"]
    annotations = ["-a", program.parent / "annotations.yaml"]
    ttrace("check", *files, *annotations, "--json", directory / "report.json", expected=expected)
    return json.loads((directory / "report.json").read_text())


@pytest.mark.parametrize("options", [("2",), ("3",), ("1", "in-turn"), ("2", "in-turn")])
def test_every_partition_has_its_place_in_the_plain_models_parameters(program, tmp_path, options):
    run = collect(program, tmp_path, *options)
    assert "warning" not in run.stderr
    report = check(program, tmp_path, expected=0)
    assert report["counts"]["missing"] == 0


def test_partitions_that_are_not_gathered_after_the_step_leave_stale_weights(program, tmp_path):
    collect(program, tmp_path, "1", "stale")
    report = check(program, tmp_path, expected=1)
    failed = {finding["kind"] for finding in report["findings"] if finding["verdict"] == "fail"}
    assert failed == {"param_after"}


def test_a_step_that_overflow_forbids_ends_its_iteration_and_updates_nothing(program, tmp_path):
    collect(program, tmp_path, "2", "overflow", ranks=1, iterations="0-1")
    shown = json.loads(ttrace("inspect", tmp_path / "trace", "--stats", "--json").stdout)
    of_kind = {"main_grad": {0: [], 1: []}, "param_delta": {0: [], 1: []}}
    for tensor in shown["ranks"][0]["tensors"]:
        if tensor["kind"] in of_kind:
            of_kind[tensor["kind"]][tensor["iteration"]].append(tensor["statistics"])
    assert all(len(found) == 6 for iterations in of_kind.values() for found in iterations.values())
    assert all(statistics["inf"] + statistics["nan"] > 0 for statistics in of_kind["main_grad"][0])
    assert all(statistics["norm"] == 0 for statistics in of_kind["param_delta"][0])
    assert all(statistics["norm"] > 0 for statistics in of_kind["param_delta"][1])
