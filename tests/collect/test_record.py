"""`ttrace_torch.record`: tensors that the program names and places itself."""

import pytest

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = """
import torch
from torch import nn
try:
    from ttrace_torch import record
except ImportError:
    def record(*args, **kwargs): print("not collected")

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
    def forward(self, x):
        y = self.inner(x)
        {call}
        return y

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(4, 3)).sum().backward()
optimizer.step()
with torch.no_grad():
    model(torch.ones(4, 3))
"""
SECOND_OF_TWO = {"WORLD_SIZE": "2", "RANK": "1"}


def collected_rank(collect, script, call, axes=None):
    options = {"environment": SECOND_OF_TWO} if axes else {}
    collected = collect(*(["--axes", axes] if axes else []), command=script(PROGRAM.format(call=call)), **options)
    if not axes:  # else the other rank is missing
        assert collected.code == 0, collected.process.stderr
    return collected, collected.rank(1 if axes else 0)


def test_a_tensor_is_recorded_in_each_micro_batch_of_training_and_once_more_for_each_call(collect, script):
    _, rank = collected_rank(collect, script, "record('routing', y); record('routing', 2 * y)")
    assert rank.names("output", 0) == ["inner", "routing", "routing#1", "(model)"]
    assert rank.names("output", 1) == ["inner", "routing", "routing#1", "(model)"]
    assert (rank.tensors["output", "routing#1", 1] == 2 * rank.tensors["output", "inner", 1]).all()
    assert rank.mappings[0, 0, 0, "forward", "output", "routing"] is None


def test_axes_are_recorded_with_the_sizes_of_the_trace(collect, script):
    call = "record('z', y, kind='scalar', axes={'cp': 0, 'sp': 'partial', 'ep': 1}, shape=(8, 2))"
    _, rank = collected_rank(collect, script, call, axes="tp=2,sp=tp")
    assert rank.mappings[0, 0, 0, "forward", "scalar", "z"] == {
        "axes": [{"axis": "sp", "size": 2, "placement": "partial"}],
        "shape": [8, 2],  # the others have size 1
    }


def test_one_process_records_the_same_call_without_axes(collect, script):
    _, rank = collected_rank(collect, script, "record('z', y, axes={'model_parallel': 0})")
    assert rank.mappings[0, 0, 0, "forward", "output", "z"] == {"axes": []}


def test_slices_are_parts_of_the_whole(collect, script):
    call = "record('z', y, slices=[((0, 0), (6, 0), (1, 2)), ((1, 0), (0, 0), (3, 2))], shape=(8, 2))"
    _, rank = collected_rank(collect, script, call, axes="tp=2")
    assert rank.mappings[0, 0, 0, "forward", "output", "z"] == {
        "axes": [],
        "shape": [8, 2],
        "fragment": {
            "whole": [8, 2],
            "slices": [
                {"local": [0, 0], "start": [6, 0], "size": [1, 2]},
                {"local": [1, 0], "start": [0, 0], "size": [3, 2]},
            ],
        },
    }


@pytest.mark.parametrize(
    "call, text",
    [
        ("record('z', y, axes={'tq': 0})", "record('z'): 'tq' is not an axis of the trace; expected one of tp=2"),
        (
            "record('z', y, axes={'tp': 'sum'})",
            "record('z'): axis tp is 'sum'; expected a dimension, replicate or partial",
        ),
        (
            "record('z', y, kind='loss')",
            "record('z'): kind 'loss'; expected one of output, input, grad_output, grad_input, scalar",
        ),
        (
            "record('z', y, slices=[((0, 0), (6, 0), (1, 2))])",
            "record('z'): slices; expected with them the shape that they are parts of, no axes",
        ),
    ],
)
def test_a_wrong_call_stops_the_recording_with_one_line_and_not_the_training(collect, script, call, text):
    collected, rank = collected_rank(collect, script, call + "; print('trained')", axes="tp=2")
    assert collected.code == 2 and collected.stdout.count("trained") == 3
    assert collected.messages[0] == f"ttrace: rank 1: {text}"
    assert not rank.complete


def test_without_collecting_nothing_happens(script):
    from conftest import run

    process = run(script(PROGRAM.format(call="record('z', y)")))
    assert process.returncode == 0 and process.stdout == "not collected\n" * 3
