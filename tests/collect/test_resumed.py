"""A run that loads a checkpoint is held against one that was not interrupted, whose iterations have other numbers."""

import json

import pytest
from conftest import TTRACE, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = """
import sys
import torch
from torch import nn
first, last, path, forgotten = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 0.9**done)
parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
if first:
    saved = torch.load(path)
    for name, part in parts.items():
        state = saved[name]
        if forgotten == "moments" and name == "optimizer":
            for each in state["state"].values():
                each["exp_avg"].zero_()
        if forgotten == "buffers" and name == "model":
            state = {key: value for key, value in state.items() if "running" not in key}
        if forgotten != name:
            part.load_state_dict(state, **({"strict": False} if name == "model" else {}))
for step in range(first, last):
    torch.manual_seed(step)
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    schedule.step()
torch.save({name: part.state_dict() for name, part in parts.items()}, path)
"""


@pytest.fixture(scope="module")
def checked(warm_programs, tmp_path_factory):
    """checked(what is forgotten when the run is resumed) -> the JSON report of its check"""
    directory = tmp_path_factory.mktemp("resumed")
    program = directory / "program.py"
    program.write_text(PROGRAM)

    def collect(name, iterations, *arguments):
        command = ranks(1, program, *arguments)
        collected = run([TTRACE, "collect", "-o", directory / name, "--iterations", iterations, "--", *command])
        assert collected.returncode == 0, collected.stderr

    collect("whole", "0-3", 0, 4, directory / "end.pt", "")
    run(ranks(1, program, 0, 2, directory / "middle.pt", ""))

    def checked(forgotten=""):
        collect(f"resumed-{forgotten}", "0-1", 2, 4, directory / "middle.pt", forgotten)
        run(ranks(1, program, 0, 2, directory / "middle.pt", ""))  # the resumed run has written it anew
        report = directory / "report.json"
        traces = ["--reference", directory / "whole", "--candidate", directory / f"resumed-{forgotten}"]
        iterations = ["--reference-iterations", "2-3", "--candidate-iterations", "0-1"]
        process = run([TTRACE, "check", *traces, *iterations, "--json", report])
        assert process.returncode in (0, 1), process.stderr
        return json.loads(report.read_text())

    return checked


def test_a_run_that_was_resumed_rightly_is_the_same_to_the_bit(checked):
    report = checked()
    assert report["verdict"] == "same", report["notes"]


@pytest.mark.parametrize(
    ("forgotten", "kind", "name"),
    [
        ("moments", "param_delta", "0.weight"),
        ("buffers", "buffer", "1.running_mean"),
        ("optimizer", "param_delta", "0.weight"),
        ("schedule", "param_delta", "0.weight"),
    ],
)
def test_what_was_not_restored_is_the_first_wrong_tensor(checked, forgotten, kind, name):
    report = checked(forgotten)
    assert report["verdict"] == "different"
    first = report["first_wrong"]
    assert (first["kind"], first["name"], first["iteration"]) == (kind, name, 2), first
