"""The account of what a program trains: counts are of what it has, and an optimizer that lacks a parameter which
nothing has used so far is seen."""

import json

import pytest
from conftest import PYTHON, TTRACE, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

# A pooler that the loss does not use, a head for the second task, which the first batch is not of, a scale that no
# optimizer has, and a frozen layer.
PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.body, self.pooler = nn.Linear(8, 8), nn.Linear(8, 8)
        self.heads = nn.ModuleList(nn.Linear(8, 2) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(8))
    def forward(self, x, task):
        return self.heads[task](torch.tanh(self.body(self.frozen(x)) * self.scale))
net = Net()
trained = [name for name, p in net.named_parameters() if p.requires_grad and not name.startswith(LEFT_OUT)]
optimizer = torch.optim.SGD([dict(net.named_parameters())[name] for name in trained], lr=0.1)
for task in range(2):
    optimizer.zero_grad()
    net(torch.randn(4, 8), task).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def checked(warm_programs, tmp_path_factory):
    """checked(what the candidate's optimizer leaves out) -> the process of the check"""
    directory = tmp_path_factory.mktemp("trained")

    def collect(name, left_out):
        program, trace = directory / f"{name}.py", directory / name
        program.write_text(PROGRAM.replace("LEFT_OUT", repr(left_out)))
        collected = run([TTRACE, "collect", "-o", trace, "--", *ranks(1, program)])
        assert collected.returncode == 0, collected.stderr
        return trace

    reference = collect("reference", ("scale",))

    def checked(*left_out):
        candidate = collect("candidate" + "-".join(left_out), ("scale", *left_out))
        return run([TTRACE, "check", "--reference", reference, "--candidate", candidate])

    return checked


def test_counts_are_of_what_the_program_has(checked):
    check = checked()
    assert check.returncode == 0, check.stdout
    lines = check.stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("optimizer steps checked: ")]
    assert line.startswith("optimizer steps checked: 8 of 9 parameters, 1 iteration"), line
    assert "  heads.1.bias, heads.1.weight, pooler.bias, pooler.weight: no gradient in what was recorded" in lines
    assert "  scale: in no optimizer" in lines


@pytest.mark.parametrize("left_out", ["body", "heads.1"], ids=["with a gradient", "that nothing has used"])
def test_an_optimizer_that_lacks_a_parameter_is_wrong(checked, left_out):
    check = checked(left_out)
    assert check.returncode == 1, check.stdout
    assert f"{left_out}.weight" in check.stdout.splitlines()[1], check.stdout


OF_PARTS = """
import torch
class Sharded(torch.optim.Optimizer):  # as fairscale's OSS: all parameters, of which an optimizer inside steps some
    def __init__(self, parameters):
        parameters = list(parameters)
        super().__init__(parameters, {})
        self.optim = torch.optim.SGD(parameters[:1], lr=0.1)
    def step(self):
        self.optim.step()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = Sharded(model.parameters())
model(torch.randn(3, 4)).sum().backward()
optimizer.step()
"""


def test_an_optimizer_that_steps_by_another_has_what_that_one_has(collect):
    steps = json.loads(collect(command=[PYTHON, "-c", OF_PARTS]).rank().attributes["provenance"])["optimizer_steps"]
    owners = {name: each["optimizer"] for each in steps["trained"] for name in steps["parameters"][each["parameters"]]}
    assert owners == {"weight": "torch.optim.sgd.SGD", "bias": ""}


BESIDE = OF_PARTS.replace("super().__init__(parameters, {})", "super().__init__(parameters[1:], {})")


def test_an_optimizer_that_keeps_one_of_other_parameters_has_its_own(collect):
    steps = json.loads(collect(command=[PYTHON, "-c", BESIDE]).rank().attributes["provenance"])["optimizer_steps"]
    owners = {name: each["optimizer"] for each in steps["trained"] for name in steps["parameters"][each["parameters"]]}
    assert owners["weight"] == "torch.optim.sgd.SGD" and owners["bias"].endswith("Sharded")
