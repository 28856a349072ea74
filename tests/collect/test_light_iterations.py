"""Behind what is recorded whole come light iterations, of which gradients, updates, what they make of parameters and
buffers, and scalars are recorded: a mistake that begins with the second step is found, and costs a fraction of a whole
recording."""

import json
import re
from pathlib import Path

import pytest
from conftest import TTRACE, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = """
import os
import sys
import torch
from torch import nn
mistake, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
model = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300).eval(), nn.Tanh(), nn.Linear(300, 300))
inputs = torch.randn(steps, 8, 300)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 0.9**done)
net = model
if world > 1:
    torch.distributed.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(model)
for step, batch in enumerate(inputs):
    if step == 1 and mistake == "moments":  # as after a checkpoint that lacks them
        for state in optimizer.state.values():
            state["exp_avg"].zero_()
    if step == 2 and mistake == "samples":
        batch = batch.roll(1, 0) if rank == 0 else batch
    optimizer.zero_grad()
    net(batch.chunk(world)[rank]).square().mean().backward()
    optimizer.step()
    if not (step == 0 and mistake == "schedule"):
        schedule.step()
if world > 1:
    torch.distributed.destroy_process_group()
"""


def collect(directory, name, *options, count=1, mistake="", steps=3):
    program = directory / "program.py"
    program.write_text(PROGRAM)
    command = ranks(count, program, mistake, steps)
    collected = run([TTRACE, "collect", "-o", directory / name, *options, "--", *command])
    assert collected.returncode == 0, collected.stderr
    return directory / name


@pytest.fixture(scope="module")
def checked(warm_programs, tmp_path_factory):
    """checked(mistake, *options of check) -> the report of two ranks"""
    directory = tmp_path_factory.mktemp("light")
    reference = collect(directory, "reference", "--then", "2")
    estimate = [TTRACE, "estimate-tolerance", "-o", directory / "tolerance.yaml", "--reference", reference]
    estimated = run([*estimate, "--", *ranks(1, directory / "program.py", "", 3)])
    assert estimated.returncode == 0, estimated.stderr

    def checked(mistake, *options):
        candidate = directory / (mistake or "right")
        if not candidate.exists():
            collect(directory, candidate.name, "--then", "2", count=2, mistake=mistake)
        traces = ["--reference", reference, "--candidate", candidate, "-t", directory / "tolerance.yaml"]
        process = run([TTRACE, "check", *traces, *options, "--json", directory / "report.json"])
        assert process.returncode in (0, 1, 2), process.stderr
        return json.loads((directory / "report.json").read_text())

    return checked


def test_a_right_run_is_the_same_in_all_of_them(checked):
    report = checked("")
    assert report["verdict"] == "same", report
    assert any(note.startswith("light iteration 1, 2: its gradients") for note in report["notes"]), report["notes"]


@pytest.mark.parametrize(
    ("mistake", "kind", "iteration"),
    [("moments", "param_delta", 1), ("schedule", "param_delta", 0), ("samples", "scalar", 2)],
)
def test_a_mistake_that_the_first_step_does_not_show_is_found(checked, mistake, kind, iteration):
    report = checked(mistake)
    first = report["first_wrong"]
    assert report["verdict"] == "different"
    assert (first["kind"], first["iteration"]) == (kind, iteration), first


@pytest.mark.parametrize(("mistake", "found"), [("", None), ("kept-last", ("param_after", "2.bias", 2))])
def test_a_copy_that_is_not_handed_on_in_the_last_one_is_found(tmp_path, monkeypatch, mistake, found):
    program = Path(__file__).parents[1] / "programs/kinds/zero_by_hand.py"
    for count in (1, 2):
        monkeypatch.setenv("MISTAKE", mistake if count == 2 else "")
        collected = run([TTRACE, "collect", "-o", tmp_path / str(count), "--then", "2", "--", *ranks(count, program)])
        assert collected.returncode == 0, collected.stderr
    tolerance, report = tmp_path / "tolerance.yaml", tmp_path / "report.json"
    monkeypatch.setenv("MISTAKE", "")
    estimate = [TTRACE, "estimate-tolerance", "-o", tolerance, "--reference", tmp_path / "1"]
    estimated = run([*estimate, "--", *ranks(1, program)])
    assert estimated.returncode == 0, estimated.stderr
    traces = ["--reference", tmp_path / "1", "--candidate", tmp_path / "2", "-t", tolerance]
    process = run([TTRACE, "check", *traces, "--json", report])
    first = json.loads(report.read_text())["first_wrong"]
    assert (first and (first["kind"], first["name"], first["iteration"])) == found, process.stdout


def test_what_the_first_iteration_is_allowed_does_not_grow_with_them(tmp_path):
    allowed = {}
    for then in (0, 2):
        reference = collect(tmp_path, f"reference-{then}", "--then", then)
        tolerance = tmp_path / f"{then}.yaml"
        estimate = [TTRACE, "estimate-tolerance", "-o", tolerance, "--reference", reference]
        estimated = run([*estimate, "--", *ranks(1, tmp_path / "program.py", "", 3)])
        assert estimated.returncode == 0, estimated.stderr
        allowed[then] = tolerance.read_text().partition("\ntensors:\n")[2]
    without_light, found = re.subn(r", light: [^,}]+", "", allowed[2])
    assert without_light == allowed[0]
    assert found > 10


def test_they_hold_what_carries_over_and_large_tensors_as_sketches(checked, tmp_path):
    whole = collect(tmp_path, "whole", "--iterations", "0-2")
    light, first = collect(tmp_path, "light", "--then", "2"), collect(tmp_path, "first")

    def recorded(trace, iteration):
        tensors = json.loads(run([TTRACE, "inspect", trace, "--json"]).stdout)["ranks"][0]["tensors"]
        return {(each["kind"], each["name"]) for each in tensors if each["iteration"] == iteration}

    kinds = {"main_grad", "param_delta", "param_after", "buffer_after", "scalar"}
    for iteration in (1, 2):
        assert recorded(light, iteration) == {each for each in recorded(whole, iteration) if each[0] in kinds}
    assert recorded(light, 0) == recorded(first, 0)
    bytes_of = {trace: (trace / "rank-00000.h5").stat().st_size for trace in (whole, light, first)}
    assert bytes_of[light] - bytes_of[first] < 0.1 * (bytes_of[whole] - bytes_of[first])


def test_a_whole_recording_is_held_against_a_light_one(checked, tmp_path):
    whole = collect(tmp_path, "whole", "--iterations", "0-2")
    light = collect(tmp_path, "light", "--then", "2", count=2)
    process = run([TTRACE, "check", "--reference", whole, "--candidate", light, "-t", "default"])
    assert process.returncode == 0, process.stdout + process.stderr
    assert "0 missing" in process.stdout and "light iteration 1, 2: not compared" in process.stdout


def test_a_program_may_end_before_them(checked, tmp_path):
    short = collect(tmp_path, "short", "--then", "5", steps=2)
    process = run([TTRACE, "check", "--reference", short, "--candidate", short, "--allow-same-run"])
    assert process.returncode == 0 and "light iteration 1: " in process.stdout, process.stdout


def test_traces_of_iterations_are_whole(tmp_path):
    process = run([TTRACE, "collect", "-o", tmp_path / "trace", "--split", "--then", "2", "--", "true"])
    assert process.returncode == 2 and "expected no --then with it" in process.stderr
