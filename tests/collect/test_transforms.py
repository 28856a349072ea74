"""Programs that call models inside transforms of torch.func: what these wrap has no storage, and is not seen."""

import json

import numpy
import pytest
from conftest import TTRACE, run
from test_odd_modules import unseen

pytestmark = pytest.mark.usefixtures("warm_programs")

# Per-sample gradients as PyTorch's tutorial makes them, whose mean is the gradient of the whole batch.
TRAIN = """
import sys
import torch
from torch.func import functional_call, grad, jacrev, vmap
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(6, 4), torch.randn(6, 2)

def loss_of(parameters, x, y):
    return (functional_call(net, parameters, (x.unsqueeze(0),)) - y.unsqueeze(0)).square().mean()

for step in range(2):
    optimizer.zero_grad()
    if "samples" in sys.argv:
        parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}
        gradients = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
        for name, parameter in net.named_parameters():
            parameter.grad = gradients[name].mean(0)
    else:
        (net(x) - y).square().mean().backward()
    if "wrong" in sys.argv:
        net[0].weight.grad.mul_(1.5)
    optimizer.step()
"""

INSIDE = """
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        hidden = torch.func.vmap(self.inner)(x)
        if "batched" in sys.argv:
            torch.autograd.functional.jacobian(self.outer, x, vectorize=True)
        return self.outer(hidden + torch.func.vmap(torch.func.jacrev(self.inner))(x).sum(-1))

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(6, 4)).square().mean().backward()
optimizer.step()
"""


@pytest.fixture
def check(collect, script):
    """check(*arguments of the candidate, reference=the reference's) -> its trace, the exit code and the report"""

    def check(*arguments, reference=()):
        reference, candidate = (collect(command=script(TRAIN, *each)) for each in (reference, arguments))
        assert (reference.code, candidate.code) == (0, 0), candidate
        pair = ("--reference", reference.directory, "--candidate", candidate.directory)
        process = run([TTRACE, "check", *pair, "-t", "default", "--json", "-"])
        return candidate, process.returncode, json.loads(process.stdout)

    return check


def test_of_gradients_of_samples_what_reaches_the_optimizer_is_compared_and_the_rest_not_seen(check):
    candidate, code, report = check("samples")
    assert candidate.rank().names("main_grad") == ["0.weight", "0.bias", "2.weight", "2.bias"]
    named = "calls of 'Sequential' inside a transform of torch.func, such as vmap and grad"
    assert f"ttrace: warning: rank 0: not traceable: {named}" in candidate.messages
    assert unseen(candidate.rank(), "output") == {"(model)", "0", "1", "2"}
    assert code == 2 and report["verdict"] == "could-not-look"
    assert {finding["reason"] for finding in report["findings"]} == {"not-seen-in-candidate"}
    assert report["counts"]["pass"] == 16


def test_what_neither_run_has_seen_is_said_beside_a_verdict(check):
    _, code, report = check("samples", reference=["samples"])
    assert (code, report["verdict"]) == (0, "same"), report
    note = next(note for note in report["notes"] if "neither" in note)
    assert note.startswith("recorded in neither run, and not compared: computed inside a transform of torch.func: ")
    assert "calls of 0, param_grad of 0.bias, " in note


def test_a_wrong_mean_of_gradients_of_samples_is_different(check):
    _, code, report = check("samples", "wrong")
    assert code == 1
    assert (report["first_wrong"]["name"], report["first_wrong"]["kind"]) == ("0.weight", "main_grad")


@pytest.mark.parametrize("batched", [(), ("batched",)])
def test_modules_inside_a_transform_of_a_recorded_module_are_named(collect, script, batched):
    collected = collect(command=script(INSIDE, *batched))
    assert collected.code == 0, collected
    assert unseen(collected.rank(), "output") >= {"inner"}
    assert "(model)" in collected.rank().names("output", 0)
    assert collected.rank().names("param_after") == ["inner.weight", "inner.bias", "outer.weight", "outer.bias"]


def test_of_a_model_that_is_called_inside_a_transform_the_input_is_perturbed(collect, script):
    plain = collect(command=script(TRAIN, "samples")).rank()
    perturbed = collect("--perturb", "1", command=script(TRAIN, "samples"))
    assert perturbed.code == 0, perturbed.process.stderr
    for name in plain.names("main_grad"):
        before, after = (rank.tensors["main_grad", name, -1] for rank in (plain, perturbed.rank()))
        assert not numpy.array_equal(before, after)
        assert numpy.linalg.norm(after - before) < 1e-5 * numpy.linalg.norm(before)
