"""What goes into a CUDA graph is not run, has no values, and is named. No device is needed: the program says that it
captures, which says nothing of CUDA itself."""

import json

import pytest
from conftest import TTRACE, run

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = """
import sys
import torch
capturing = False
torch.cuda.is_initialized = lambda: True
torch.cuda.is_current_stream_capturing = lambda: capturing
to = torch.Tensor.to
def checked_to(tensor, *args, **kwargs):
    assert not (capturing and args == ("cpu",)), "a copy to the host ends the capture"
    return to(tensor, *args, **kwargs)
torch.Tensor.to = checked_to
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(4, 3)).sum().backward()
capturing = sys.argv[1] == "step"
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
capturing = False
optimizer.zero_grad()
capturing = sys.argv[1] == "perturbed"
model(torch.ones(4, 3))
print("done")
"""


def test_a_step_that_is_captured_is_named_and_no_values_are_taken_for_its_own(collect, script):
    plain, captured = (collect(command=script(PROGRAM, what)) for what in ("nothing", "step"))
    assert captured.code == 0 and captured.stdout == "done\n", captured
    kinds = {kind for kind, *_ in captured.rank().tensors}
    assert kinds == {"input", "output", "grad_output", "param", "param_grad", "scalar"}
    (named,) = json.loads(captured.rank().attributes["provenance"])["not_seen"][:1]
    assert named["reason"] == "computed inside a CUDA graph that is being captured"
    sides = ["--reference", plain.directory, "--candidate", captured.directory, "-t", "default"]
    checked = run([TTRACE, "check", *sides, "--json", "-"])
    report = json.loads(checked.stdout)
    counts = report["counts"]
    # Of two parameters main_grad, param_delta and param_after.
    assert (checked.returncode, counts["not_seen"], counts["missing"], counts["fail"]) == (2, 6, 0, 0), checked.stdout


def test_a_perturbed_run_of_a_captured_model_ends_with_what_to_do(collect, script):
    collected = collect("--perturb", "1", "--iterations", "0-1", command=script(PROGRAM, "perturbed"))
    assert collected.code == 2 and collected.stdout == "done\n", collected
    assert any("expected a program without CUDA graphs" in message for message in collected.messages), collected


WARM_UP = """
import sys
import torch
capturing = False
torch.cuda.is_initialized = lambda: True
torch.cuda.is_current_stream_capturing = lambda: capturing
def outside(function):
    def checked(*args, **kwargs):
        assert not capturing, "not to be asked, nor put into the program's graph"
        return function(*args, **kwargs)
    return checked
for name in ("tolist", "item", "__sub__"):
    setattr(torch.Tensor, name, outside(getattr(torch.Tensor, name)))
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
def step():
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
step()
try:
    torch.cuda.CUDAGraph.capture_begin(None)
except (AttributeError, TypeError):
    pass  # there is no device
capturing = True
step()
capturing = False
print("done")
"""


@pytest.mark.parametrize("iterations", ["0", "0-1"])
def test_a_step_before_a_capture_is_read_before_the_capture_begins(collect, script, iterations):
    collected = collect("--iterations", iterations, command=script(WARM_UP))
    assert collected.code == 0 and collected.stdout == "done\n", collected
    recorded = {(iteration, kind) for iteration, _, _, _, kind, _ in collected.rank().all}
    assert {(0, "param_delta"), (0, "param_after")} <= recorded
