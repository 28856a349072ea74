"""What runs without gradients: recorded where nothing else ran, or where it is asked for."""

import pytest
from conftest import TTRACE, python, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

# Evaluates a model whose second rank has half of each batch; TRAIN trains it first.
PROGRAM = """
import os
import torch
from torch import nn
torch.manual_seed(0)
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    torch.distributed.init_process_group("gloo")
net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))
batches = torch.randn(CALLS, 4, 8)
if TRAIN:
    with torch.no_grad():
        net(batches[0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in batches[:2]:
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
EVAL
with torch.inference_mode():
    for batch in batches:
        net(batch.chunk(world)[rank] * SCALE)
if world > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.fixture
def program(tmp_path):
    """program(name, ...) -> its path"""

    def program(name, calls=2, train=False, evaluates=True, scale="1"):
        path = tmp_path / f"{name}.py"
        text = PROGRAM.replace("CALLS", str(calls)).replace("TRAIN", str(train)).replace("SCALE", scale)
        path.write_text(text.replace("EVAL", "net.eval()" if evaluates else "net.train()"))
        return path

    return program


@pytest.mark.parametrize(
    ("wrong", "code"),
    # That dropout draws numbers is the candidate's own mode, and not chance.
    [({}, 0), ({"scale": "(1 + rank)"}, 1), ({"evaluates": False}, 1)],
    ids=["right", "scale", "mode"],
)
def test_an_evaluation_alone_is_recorded_and_checked(program, tmp_path, wrong, code):
    right, other = program("right"), program("other", **wrong)
    reference, candidate, tolerance = tmp_path / "reference", tmp_path / "candidate", tmp_path / "tolerance.yaml"
    collected = run([TTRACE, "collect", "-o", reference, "--", *python(right)])
    assert collected.returncode == 0, collected.stderr
    assert "no model was called with gradients: what ran without them was recorded" in collected.stderr
    estimate = [TTRACE, "estimate-tolerance", "-o", tolerance, "--reference", reference, "--", *python(right)]
    assert run(estimate).returncode == 0
    assert run([TTRACE, "collect", "-o", candidate, "--axes", "dp=2", "--", *ranks(2, other)]).returncode == 0
    check = run([TTRACE, "check", "--reference", reference, "--candidate", candidate, "-t", tolerance])
    assert check.returncode == code, check.stdout


def test_a_program_that_trains_is_recorded_as_ever(collect, program):
    collected = collect(command=python(program("train", train=True)))
    assert collected.code == 0, collected
    assert "loss" in collected.rank().names("scalar")
    assert [path.name for path in collected.directory.iterdir() if path.is_dir()] == []


def test_more_calls_than_are_recorded_unasked_are_recorded_where_asked_for(collect, program):
    many = python(program("many", calls=40))
    unasked, asked = collect(command=many), collect("--no-grad", command=many)
    assert unasked.code == 2 and "expected --no-grad" in unasked.process.stderr, unasked
    assert asked.code == 0, asked
