"""What a program keeps beside the parameters that its optimizers update."""

import json

import pytest
from conftest import TTRACE, ranks, run
from rank_file import RankFile

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = """
import copy
import torch
from torch import nn
torch.manual_seed(0)
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.arange(64.0), persistent=False)
        self.register_buffer("turns", torch.polar(torch.ones(2), torch.ones(2)))
        self.register_buffer("none", None)
    def forward(self, x):
        self.mean.lerp_(x.mean(0).detach(), 0.5)
        return x - self.mean
model = nn.Sequential(nn.Linear(4, 4), Norm())
frozen, average = copy.deepcopy(model), copy.deepcopy(model)
teacher = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    optimizer.zero_grad()
    x = torch.randn(8, 4)
    with torch.no_grad():
        target = frozen(x) + teacher(x)
    (model(x) - target).square().mean().backward()
    optimizer.step()
    for mine, other in zip(average.parameters(), model.parameters()):
        mine.data.lerp_(other.data, 0.1)
    teacher.weight.data.mul_(0.9)
"""


@pytest.fixture(scope="module")
def trace(warm_programs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("buffers")
    (directory / "program.py").write_text(PROGRAM)
    collected = run([TTRACE, "collect", "-o", directory / "trace", "--", *ranks(1, directory / "program.py")])
    assert collected.returncode == 0, collected.stderr
    return RankFile(directory / "trace" / "rank-00000.h5")


def test_buffers_are_recorded_before_and_after_an_iteration(trace):
    own = ["1.mean", "1.table", "1.turns"]
    assert trace.names("buffer") == own
    assert [name for name in trace.names("buffer_after") if name in own] == own
    before, after = (trace.tensors[kind, "1.mean", -1] for kind in ("buffer", "buffer_after"))
    assert not before.any() and after.any()
    assert trace.tensors["buffer", "1.turns", -1].shape == (2, 2)  # complex numbers as pairs of real ones


def test_models_that_no_optimizer_updates_are_recorded_where_the_iteration_has_changed_them(trace):
    after = set(trace.names("buffer_after"))
    # `frozen` is changed by the call without gradients that comes before the next iteration's first.
    assert {"Sequential.1.mean", "Sequential1.0.weight", "Sequential1.0.bias", "Linear.weight", "Linear.bias"} <= after
    changed = trace.tensors["buffer_after", "Sequential1.0.weight", -1] - trace.tensors["param", "0.weight", -1]
    assert abs(changed - 0.1 * trace.tensors["param_delta", "0.weight", -1]).max() < 1e-6


IN_A_FUNCTION = """
import copy
import gc
import torch
def train():
    model = torch.nn.Linear(4, 4)
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        for mine, other in zip(average.parameters(), model.parameters()):
            mine.data.lerp_(other.data, 0.1)
train()
gc.collect()
"""


def test_an_average_that_ends_with_the_function_that_made_it_is_recorded_of_the_last_iteration(tmp_path):
    (tmp_path / "program.py").write_text(IN_A_FUNCTION)
    command = [TTRACE, "collect", "--iterations", "0-2", "-o", tmp_path / "trace"]
    collected = run([*command, "--", *ranks(1, tmp_path / "program.py")])
    assert collected.returncode == 0, collected.stderr
    trace = RankFile(tmp_path / "trace" / "rank-00000.h5")
    assert [key[0] for key in trace.all if key[4:] == ("buffer_after", "Linear.weight")] == [0, 1, 2]


def test_copies_in_a_list_have_the_programs_name_for_it_also_where_it_has_been_found_before():
    import torch

    from ttrace_torch.weight_copies import Found, _title

    class Trainer:
        def __init__(self):
            self.average = [torch.ones(2)]

    trainer = Trainer()
    found = [Found("average", trainer.average, ["weight"], "") for _ in range(8)]
    assert _title(trainer.average) == "Trainer.average" and len(found) == 8


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """checked(candidate's program) -> the JSON report of its check against PROGRAM"""
    directory = tmp_path_factory.mktemp("schedules")

    def collect(name, text):
        (directory / f"{name}.py").write_text(text)
        collected = run([TTRACE, "collect", "-o", directory / name, "--", *ranks(1, directory / f"{name}.py")])
        assert collected.returncode == 0, collected.stderr
        return directory / name

    def checked(text):
        schedule = "schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)\nfor _"
        stepped = "optimizer.step()\n    schedule.step()"
        reference = PROGRAM.replace("for _", schedule, 1).replace("optimizer.step()", stepped)
        paths = collect("reference", reference), collect("candidate", reference.replace("schedule.step()", text))
        report = directory / "report.json"
        options = ["-t", "default", "--allow-same-run", "--json", report]
        run([TTRACE, "check", "--reference", paths[0], "--candidate", paths[1], *options])
        return json.loads(report.read_text())

    return checked


def test_a_schedule_that_is_stepped_twice_shows_in_the_first_iteration(checked):
    report = checked("schedule.step(); schedule.step()")
    assert report["verdict"] == "different"
    first = report["first_wrong"]
    assert (first["kind"], first["reason"]) == ("param_delta", "options-differ")
    assert "for the next step lr 0.081, reference 0.09" in json.dumps(report)


TWO_MODELS = """
import copy
import torch
from torch import nn
torch.manual_seed(0)
D, G = nn.Linear(4, 1), nn.Linear(3, 4)
opt_d, opt_g = torch.optim.SGD(D.parameters(), 0.1), torch.optim.SGD(G.parameters(), 0.1)
average = copy.deepcopy(G)
class Shadow:
    def __init__(self, parameters):
        self.weights = [each.detach().clone() for each in parameters]
shadow = Shadow(G.parameters())
for _ in range(2):
    opt_d.zero_grad()
    (D(torch.randn(5, 4)) - D(G(torch.randn(5, 3)).detach())).mean().backward()
    opt_d.step()
    opt_g.zero_grad()
    D(G(torch.randn(5, 3))).square().mean().backward()
    opt_g.step()
    with torch.no_grad():
        for copied, mine, new in zip(shadow.weights, average.parameters(), G.parameters()):
            copied.lerp_(new, 0.2)
            mine.lerp_(new, 0.1)
"""


def test_averages_of_a_model_that_is_called_behind_another_are_recorded(warm_programs, tmp_path):
    (tmp_path / "program.py").write_text(TWO_MODELS)
    collected = run([TTRACE, "collect", "-o", tmp_path / "trace", "--", *ranks(1, tmp_path / "program.py")])
    assert collected.returncode == 0, collected.stderr
    trace = RankFile(tmp_path / "trace" / "rank-00000.h5")
    names = ("Linear.weight", "Linear.bias", "Shadow.weights.weight", "Shadow.weights.bias")
    assert set(names) == set(trace.names("buffer_after"))
    before, moved = (trace.all[0, -1, 1, "forward", kind, "weight"] for kind in ("param", "param_delta"))  # of G
    for name, share in (("Linear.weight", 0.1), ("Shadow.weights.weight", 0.2)):
        assert abs(trace.tensors["buffer_after", name, -1] - before - share * moved).max() < 1e-6


@pytest.mark.parametrize(
    ("skipped", "verdict"),
    [pytest.param(0, "different", id="an-iteration-in-between"), pytest.param(1, "could-not-look", id="the-last-one")],
)
def test_an_average_that_is_not_updated_is_wrong_where_it_is_updated_later(warm_programs, tmp_path, skipped, verdict):
    reference = IN_A_FUNCTION.replace("range(3)", "range(2)").replace("for _ in", "for iteration in")
    update = "for mine, other in"
    candidate = reference.replace(update, f"for mine, other in () if iteration == {skipped} else")
    for name, text in (("reference", reference), ("candidate", candidate)):
        (tmp_path / f"{name}.py").write_text(text)
        command = [TTRACE, "collect", "--iterations", "0-1", "-o", tmp_path / name, "--"]
        assert run([*command, *ranks(1, tmp_path / f"{name}.py")]).returncode == 0
    options = ["--bits", "--json", tmp_path / "report.json"]
    run([TTRACE, "check", "--reference", tmp_path / "reference", "--candidate", tmp_path / "candidate", *options])
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] == verdict
    if verdict == "different":
        assert report["first_wrong"]["name"] == "Linear.weight" and report["first_wrong"]["iteration"] == skipped
