"""What is recorded of an optimizer's step suffices to work the step out: options, step count, clip factor, state."""

import numpy
import pytest
from conftest import TTRACE, python, run
from rank_file import RankFile
from replay import Replay

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)){model}
parameters = list(model.parameters())
optimizer = torch.optim.{optimizer}
for iteration in range({iterations}):
    model.zero_grad()
    for _ in range(2):
        (model(torch.randn(4, 6, dtype=parameters[0].dtype)) ** 2).sum().backward()
    {before}
    {step}
    {after}
"""
FACTS = {"optimizer": "SGD(parameters, lr=0.1)", "iterations": 3, "before": "", "after": "", "model": ""}


@pytest.fixture
def replayed(collect, script):
    """replayed(*options, **fields of PROGRAM) -> Replay of the one rank"""

    def replayed(*options, program=PROGRAM, messages=1, **fields):
        text = program.format(**{**FACTS, "step": "optimizer.step()", **fields})
        collected = collect(*(options or ("--iterations", "0-2")), command=script(text))
        assert collected.code == 0 and len(collected.messages) == messages, collected.process.stderr
        return Replay(collected.rank())

    return replayed


NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]
CLIPPED = "nn.utils.clip_grad_norm_(model.parameters(), 0.5)"
ADAM = "Adam(parameters, lr=1e-2, betas=(0.8, 0.9)"

# Each with a model of its own, in one process: optimizer, what comes before its step, the model's dtype.
STEPS = {
    "Adam": (f"{ADAM})", "", "float"),
    "Adam, foreach": (f"{ADAM}, foreach=True)", "", "float"),
    "Adam, fused": (f"{ADAM}, fused=True)", "", "float"),
    "Adam, L2": (f"{ADAM}, weight_decay=0.1)", "", "float"),
    "Adam, amsgrad": (f"{ADAM}, amsgrad=True)", "", "float"),
    "Adam, in fp64": (f"{ADAM})", "", "double"),
    "AdamW, maximize, clipped": ("AdamW(parameters, lr=1e-2, maximize=True)", CLIPPED, "float"),
    "AdamW, two groups, lr a tensor": (
        "AdamW([{'params': parameters[:1], 'lr': torch.tensor(2e-3)}, "
        "{'params': parameters[1:], 'weight_decay': 0.0}], lr=1e-2, eps=1e-6)",
        "",
        "float",
    ),
    "SGD": ("SGD(parameters, lr=0.1)", CLIPPED, "float"),
    "SGD, momentum": ("SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01)", "", "float"),
    "SGD, nesterov": ("SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)", CLIPPED, "float"),
    "clipped by value": (f"{ADAM})", "nn.utils.clip_grad_value_(parameters, 0.1)", "float"),
    "clipped by hand": (f"{ADAM})", "[p.grad.mul_(0.5) for p in parameters]", "float"),
}
MANY = """
import torch
from torch import nn
torch.manual_seed(0)
runs = []
for optimizer, before, dtype in STEPS.values():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(getattr(torch, dtype))
    parameters = list(model.parameters())
    runs.append((model, parameters, eval(f"torch.optim.{optimizer}"), before))
for iteration in range(7):
    for model, parameters, _, _ in runs:
        model.zero_grad()
        (model(torch.randn(4, 6, dtype=parameters[0].dtype)) ** 2).sum().backward()
    for model, parameters, optimizer, before in runs:
        exec(before)
        optimizer.step()
"""
RECORDED, WITH_STATE = (0, 1, 3, 4, 6), (3, 6)  # of the others the iteration before is recorded


@pytest.fixture(scope="module")
def many(warm_programs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("many")
    (directory / "many.py").write_text(f"STEPS = {STEPS}\n{MANY}")
    iterations = ",".join(map(str, RECORDED))
    command = [TTRACE, "collect", "-o", directory / "trace", "--iterations", iterations, "--"]
    process = run([*command, *python(directory / "many.py")])
    assert process.returncode == 0, process.stderr
    return Replay(RankFile(directory / "trace" / "rank-00000.h5"))


@pytest.mark.parametrize("name", STEPS)
def test_a_step_follows_from_what_was_recorded_of_it(many, name):
    chunk = list(STEPS).index(name)
    ratios = [ratio for (_, of, _), ratio in many.ratios.items() if of == chunk]
    assert len(ratios) == 4 * len(RECORDED) and not many.unknown
    assert 0.1 < max(ratios) < 1.5


@pytest.mark.parametrize("name", STEPS)
def test_state_is_recorded_where_the_iteration_before_was_not(many, name):
    expected = {"exp_avg", "exp_avg_sq"} if "SGD" not in name else {"momentum_buffer"} if "," in name else set()
    expected |= {"max_exp_avg_sq"} if "amsgrad" in name else set()
    for iteration in RECORDED:
        place = (iteration, list(STEPS).index(name), "0.weight")
        kinds = {kind for (i, _, chunk, _, kind, of) in many.rank.all if (i, chunk, of) == place}
        state = kinds & {"master", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"}
        assert state == (expected if iteration in WITH_STATE else set()), iteration


def test_moments_in_less_than_fp32_are_recorded_at_each_iteration(replayed):
    replay = replayed(optimizer=f"{ADAM})", model=".bfloat16()", before=CLIPPED)
    kinds = {(i, kind) for (i, _, _, _, kind, name) in replay.rank.all if name == "2.weight"}
    assert {i for i, kind in kinds if kind == "exp_avg"} == {i for i, kind in kinds if kind == "exp_avg_sq"} == {1, 2}
    # A factor would not give what was rounded to bf16.
    assert {i for i, kind in kinds if kind == "step_grad"} == {0, 1, 2} and replay.worst() < 2


def test_options_are_those_of_the_step_and_of_each_group(replayed):
    optimizer = "AdamW([{'params': parameters[:1], 'lr': 0.5}, {'params': parameters[1:]}], lr=1.0, betas=(0.5, 0.75))"
    after = "[group.update(lr=group['lr'] / 2) for group in optimizer.param_groups]"
    replay = replayed(optimizer=optimizer, after=after)
    for iteration in range(3):
        (first,), (second,) = (replay.steps_of(name, iteration) for name in ("0.weight", "2.bias"))
        assert first["optimizer"] == "torch.optim.adamw.AdamW" and first["step"] == iteration + 1
        assert first["options"]["lr"] == 0.5 / 2**iteration and second["options"]["lr"] == 1 / 2**iteration
        for name, value in (("beta1", 0.5), ("beta2", 0.75), ("decoupled_weight_decay", 1), ("amsgrad", 0)):
            assert first["options"][name] == value
        assert first["calls"] == 1 and first["clip_factor"] == 1 and "master" not in first
    assert replay.document["parameters"] == [["0.weight"], ["0.bias", "2.weight", "2.bias"]]


def test_the_clip_factor_is_what_the_gradient_was_multiplied_by(replayed):
    replay = replayed(before="norm = " + CLIPPED)
    norm = replay.rank.tensors["scalar", "grad_norm", -1]
    for name in NAMES:
        assert replay.steps_of(name)[0]["clip_factor"] == pytest.approx(0.5 / (norm + 1e-6), rel=1e-6)
    assert replay.rank.names("step_grad") == []


def test_a_gradient_of_zeros_has_the_clip_factor_of_the_others(replayed):
    zero = "parameters[1].grad.zero_(); "
    replay = replayed(before=zero + CLIPPED)
    assert replay.steps_of("0.bias") == replay.steps_of("0.weight") and replay.steps_of("0.bias")[0]["clip_factor"] < 1
    assert replayed(before=zero).steps_of("0.bias")[0]["clip_factor"] == 1


def test_a_gradient_that_is_no_multiple_of_the_main_gradient_is_recorded(replayed):
    replay = replayed(before="nn.utils.clip_grad_value_(parameters, 0.1)")
    step_grads = {(i, name): values for (i, _, _, _, kind, name), values in replay.rank.all.items()
                  if kind == "step_grad"}  # fmt: skip
    for (iteration, name), values in step_grads.items():
        main_grad = replay.rank.all[iteration, -1, 0, "forward", "main_grad", name]
        assert numpy.array_equal(values, numpy.clip(main_grad, numpy.float32(-0.1), numpy.float32(0.1)))
        assert "clip_factor" not in replay.steps_of(name, iteration)[0]
    assert (0, "0.weight") in step_grads


SCALED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(6, 3)
optimizer = torch.optim.{optimizer}
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for factor in (1.0, float("inf"), 2.0):
    optimizer.zero_grad()
    scaler.scale((model(torch.randn(4, 6)) ** 2).sum() * factor).backward()
    {before}
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize("before", ["", "scaler.unscale_(optimizer); " + CLIPPED], ids=["", "clipped"])
@pytest.mark.parametrize("fused", [False, True], ids=["", "fused"])
def test_a_step_with_a_loss_scale_follows_and_one_that_overflow_forbids_is_no_call(replayed, before, fused):
    optimizer = f"AdamW(model.parameters(), lr=1e-2, fused={fused})"
    replay = replayed(program=SCALED, optimizer=optimizer, before=before)
    assert {place[:2] for place in replay.ratios} == {(0, 0), (2, 0)} and replay.worst() < 1.5
    for name in ("weight", "bias"):
        (skipped,) = replay.steps_of(name, 1)
        assert skipped["calls"] == 0 and skipped["optimizer"] == "torch.optim.adamw.AdamW"
        assert not replay.rank.all[1, -1, 0, "forward", "param_delta", name].any()
        assert [replay.steps_of(name, iteration)[0]["step"] for iteration in (0, 2)] == [1, 2]


def test_each_optimizer_has_its_parameters_and_a_parameter_in_none_is_named(replayed):
    replay = replayed(
        optimizer="SGD(parameters[:1], lr=0.5); other = torch.optim.Adam(parameters[1:3])",
        step="optimizer.step(); [p.grad.mul_(0.5) for p in parameters]; other.step()",
        messages=3,
    )
    of = {name: replay.steps_of(name)[0] for name in NAMES}
    assert of["0.weight"]["optimizer"] == "torch.optim.sgd.SGD" and of["0.weight"]["clip_factor"] == 1
    for name in ("0.bias", "2.weight"):
        # Main gradients are those that each is given.
        assert of[name]["optimizer"] == "torch.optim.adam.Adam" and of[name]["clip_factor"] == 1
    assert of["2.bias"]["optimizer"] == "" and of["2.bias"]["options"] == {} and of["2.bias"]["calls"] == 0
    assert len(replay.ratios) == 9 and replay.worst() < 1.5


def test_the_delta_is_that_of_all_steps_of_an_iteration(replayed):
    replay = replayed(step="optimizer.step(); optimizer.step()")
    for iteration in range(3):
        for name in NAMES:
            (step,) = replay.steps_of(name, iteration)
            assert step["calls"] == 2 and "clip_factor" not in step
            of = {key[4]: values for key, values in replay.rank.all.items() if (key[0], key[5]) == (iteration, name)}
            assert numpy.allclose(of["param_delta"], -0.2 * of["main_grad"], rtol=1e-4, atol=1e-6)


def test_state_is_recorded_after_an_iteration_of_several_steps(replayed):
    replay = replayed(optimizer=f"{ADAM})", step="optimizer.step(); iteration or optimizer.step()")
    kinds = {(i, kind) for (i, _, _, _, kind, name) in replay.rank.all if name == "2.weight"}
    assert {i for i, kind in kinds if kind == "exp_avg"} == {1}
    assert {place[0] for place in replay.ratios} == {1, 2} and replay.worst() < 1.5


# Each with the model's dtype.
CHANGES = {
    "a weight": ("parameters[2].data[1] += 1e-3", "float"),
    "rows exchanged": ("parameters[2].data.copy_(parameters[2].data.flip(0))", "float"),
    "all signs": ("parameters[2].data.neg_()", "double"),
    "two signs": ("parameters[2].data[0, 1:5:2].neg_()", "float"),
}
# What a device's tensors are looked at with, which no device is needed for.
AS_ON_A_DEVICE = """
import sys
import torch
sketches, steps = sys.modules["ttrace_torch.device_sketches"], sys.modules["ttrace_torch.steps"]
steps.fingerprint = lambda tensor, library: sketches.fingerprint(tensor)
"""


@pytest.mark.parametrize("where", ["", AS_ON_A_DEVICE])
@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_a_parameter_after_the_step_is_in_its_delta_and_named(replayed, name, where):
    change, dtype = CHANGES[name]
    after = f"with torch.no_grad(): {change}"
    replay = replayed(program=where + PROGRAM, after=after, model=f".{dtype}()", messages=3)
    for iteration in range(3):
        assert [replay.steps_of(of, iteration)[0].get("changed_after", False) for of in NAMES] == [0, 0, 1, 0]
        assert replay.ratios[iteration, 0, "2.weight"] > 1000
        assert max(replay.ratios[iteration, 0, of] for of in NAMES if of != "2.weight") < 1.5


@pytest.mark.parametrize("where", ["", AS_ON_A_DEVICE])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_a_parameter_that_is_written_to_with_its_own_values_after_the_step_has_not_changed(replayed, where, dtype):
    after = "parameters[2].data.neg_().neg_()"
    replay = replayed(program=where + PROGRAM, after=after, model=f".{dtype}()")
    assert not any("changed_after" in step for step in replay.document["steps"]) and replay.worst() < 1.5


MASTERS = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(6, 3).bfloat16()
for parameter in model.parameters():
    parameter.main_param = nn.Parameter(parameter.detach().float() * 1.001)
masters = [parameter.main_param for parameter in model.parameters()]
optimizer = torch.optim.Adam(masters, lr=1e-2)
for iteration in range(5):
    model.zero_grad()
    (model(torch.randn(4, 6).bfloat16()) ** 2).sum().backward()
    for parameter in model.parameters():
        parameter.main_grad = parameter.grad.float()
        parameter.main_param.grad = parameter.main_grad * 0.5
    {before}
    optimizer.step()
    for parameter in model.parameters():
        parameter.data.copy_(parameter.main_param)
    {after}
"""


def test_masters_are_recorded_once_and_the_gradient_is_that_of_the_master(replayed):
    replay = replayed("--iterations", "1,2,4", program=MASTERS)
    masters = {i for (i, _, _, _, kind, name) in replay.rank.all if kind == "master" and name == "weight"}
    assert masters == {1, 4} and len(replay.ratios) == 6 and replay.worst() < 1.5
    assert {(step["master"], step["clip_factor"]) for step in replay.document["steps"]} == {("float32", 0.5)}


def test_what_changes_a_master_after_the_step_is_in_its_delta_and_named(replayed):
    change = "model.bias.main_param.data.copy_(model.bias)"  # back from its rounded copy
    replay = replayed("--iterations", "0,1", program=MASTERS, after=change, messages=3)
    for iteration in range(2):
        (weight,), (bias,) = (replay.steps_of(name, iteration) for name in ("weight", "bias"))
        assert bias["changed_after"] and "changed_after" not in weight
        assert replay.ratios[iteration, 0, "bias"] > 100 and replay.ratios[iteration, 0, "weight"] < 1.5


def test_a_master_that_is_given_no_gradient_is_no_call(replayed):
    replay = replayed("--iterations", "0,1", program=MASTERS, before="model.bias.main_param.grad = None")
    assert replay.rank.tensors["main_grad", "bias", -1].any()
    assert replay.steps_of("bias")[0]["calls"] == 0 and replay.steps_of("weight")[0]["calls"] == 1


WRAPPED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(6, 3)

class Wrapper(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=7.0))
        self.inner = torch.optim.SGD(parameters, lr=0.5, momentum=0.5)
    def step(self):
        {before}
        self.inner.step()
        {after}

parameters = list(model.parameters())
optimizer = Wrapper(parameters)
for iteration in range(3):
    optimizer.zero_grad()
    (model(torch.randn(4, 6)) ** 2).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("before, after", [("", ""), ("model.weight.grad.mul_(2)", ""), ("", "model.weight.data *= 2")])
def test_a_step_within_a_step_is_the_one_that_made_the_change(replayed, before, after):
    replay = replayed("--iterations", "1,2", program=WRAPPED, before=before, after=after)
    for iteration in (1, 2):
        (weight,), (bias,) = (replay.steps_of(name, iteration) for name in ("weight", "bias"))
        assert weight["calls"] == bias["calls"] == 1 and "changed_after" not in weight
        assert bias["optimizer"] == "torch.optim.sgd.SGD" and bias["options"]["lr"] == 0.5
        if before or after:
            assert weight["optimizer"] == "__main__.Wrapper" and weight["options"] == {"lr": 7}
        else:
            assert weight["optimizer"] == "torch.optim.sgd.SGD"
    assert replay.worst() < 1.5


OF_OTHERS = """
import torch
from torch import nn
class FusedOther(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=0.5, bias_correction=True, betas=(0.9, 0.95), name="adam"))
        self.adam_w_mode = 1
    def step(self):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
model = nn.Linear(6, 3)
optimizer = FusedOther(model.parameters())
for iteration in range(2):
    model(torch.randn(4, 6)).sum().backward()
    optimizer.step()
"""


def test_options_that_others_keep_elsewhere_are_found(replayed):
    replay = replayed("--iterations", "0,1", program=OF_OTHERS)
    options = {"lr": 0.5, "bias_correction": 1, "beta1": 0.9, "beta2": 0.95, "decoupled_weight_decay": 1}
    for iteration in range(2):
        (step,) = replay.steps_of("weight", iteration)
        assert step["options"] == options and step["step"] == iteration + 1


LONG = """
import torch
from torch import nn
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        for number in range(1100):
            self.register_parameter("w" * 1000 + str(number), nn.Parameter(torch.ones(1)))
    def forward(self, x):
        return sum(self.parameters()) * x
model = Wide()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
model(torch.ones(1)).sum().backward()
optimizer.step()
"""


def test_names_that_are_too_long_for_the_trace_are_a_warning_and_no_failure(replayed):
    replay = replayed("--iterations", "0", program=LONG, messages=3)
    assert replay.document["steps"] == [] and replay.rank.complete
    assert len(replay.rank.names("param_delta")) == 1100
