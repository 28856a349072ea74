"""An iteration is what every optimizer of the program does once, in whatever order they take their turns."""

import json

import numpy
import pytest
from conftest import TTRACE, run
from replay import Replay

pytestmark = pytest.mark.usefixtures("warm_programs")

# A discriminator and a generator, `model` and `model1` in reports.
MODELS = """
import copy
import torch
from torch import nn
torch.manual_seed(0)
D, G = nn.Linear(4, 1), nn.Linear(3, 4)
opt_d, opt_g = torch.optim.Adam(D.parameters(), lr=1e-2), torch.optim.Adam(G.parameters(), lr={lr})
def train_d():
    opt_d.zero_grad()
    D(torch.randn(5, 4)).square().mean().backward()
    (D(G(torch.randn(5, 3)).detach()) - 1).square().mean().backward()
    opt_d.step()
def train_g():
    opt_g.zero_grad()
    D(G(torch.randn(5, 3))).square().mean().backward()
    opt_g.step()
"""
IN_TURN = """
for _ in range(3):
    train_d()
    train_g()
"""
GENERATOR_FIRST = """
for _ in range(3):
    train_g()
    train_d()
"""
FIVE_TO_ONE = """
for _ in range(3):
    for _ in range(5):
        train_d()
    train_g()
"""
FROZEN_IN_TURN = """
def only(one, other):
    one.requires_grad_(True)
    other.requires_grad_(False)
for _ in range(3):
    for _ in range(2):
        only(D, G)
        train_d()
    only(G, D)
    train_g()
"""
EVALUATED = """
for _ in range(3):
    train_d()
    with torch.no_grad():
        G(torch.randn(5, 3))
    train_g()
    with torch.no_grad():
        G(torch.randn(5, 3))
"""
CLOSURES = """
opt_d, opt_g = torch.optim.SGD(D.parameters(), lr=1e-2), torch.optim.SGD(G.parameters(), lr={lr})
def closure_d():
    opt_d.zero_grad()
    loss = D(G(torch.randn(5, 3)).detach()).square().mean()
    loss.backward()
    return loss
def closure_g():
    opt_g.zero_grad()
    loss = (D(G(torch.randn(5, 3))) - 1).square().mean()
    loss.backward()
    return loss
for _ in range(3):
    opt_d.step(closure_d)
    opt_g.step(closure_g)
"""
SCALED = """
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
for factor in (1.0, float("inf"), 1.0):
    opt_d.zero_grad()
    scaler.scale(D(torch.randn(5, 4)).square().mean() * factor).backward()
    scaler.step(opt_d)
    opt_g.zero_grad()
    scaler.scale(D(G(torch.randn(5, 3))).square().mean()).backward()
    scaler.step(opt_g)
    scaler.update()
"""
IN_BACKWARD = """
def step_in_backward(model, lr):
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=lr)
        parameter.register_post_accumulate_grad_hook(
            lambda parameter, optimizer=optimizer: optimizer.step() or optimizer.zero_grad()
        )
del opt_d, opt_g
D.unused, G.unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
step_in_backward(D, 1e-2)
step_in_backward(G, {lr})
for _ in range(3):
    D.requires_grad_(True)
    D(G(torch.randn(5, 3)).detach()).square().mean().backward()
    D.requires_grad_(False)
    (D(G(torch.randn(5, 3))) - 1).square().mean().backward()
"""
BESIDES = """
made_anew = torch.optim.Adam([*D.parameters(), *G.parameters()], lr=7.0)
of_a_schedule = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=7.0)
of_frozen = torch.optim.SGD(nn.Linear(2, 2).requires_grad_(False).parameters(), lr=7.0)
for _ in range(3):
    train_d()
    train_g()
"""
PROGRAMS = {
    "in turn": IN_TURN,
    "the generator first": GENERATOR_FIRST,
    "five to one": FIVE_TO_ONE,
    "frozen in turn": FROZEN_IN_TURN,
    "evaluated in between": EVALUATED,
    "closures": CLOSURES,
    "with a loss scale": SCALED,
    "in backward": IN_BACKWARD,
    "beside others that need no step": BESIDES,
}


@pytest.fixture
def collected(collect, script):
    """collected(program, iterations, lr of the generator) -> Collected"""

    def collected(program, iterations="0-2", lr="1e-2"):
        return collect("--iterations", iterations, command=script((MODELS + program).replace("{lr}", lr)))

    return collected


def of_step(rank, iteration, chunk):
    return {
        kind
        for (of, microbatch, number, _, kind, name) in rank.all
        if (of, microbatch, number) == (iteration, -1, chunk) and name == "weight"
    } & {"param", "main_grad", "param_delta", "param_after"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_iteration_has_a_step_of_each_optimizer(collected, name):
    trace = collected(PROGRAMS[name])
    assert trace.code == 0, trace
    said = [line for line in trace.messages if "an iteration goes on until each optimizer has stepped" in line]
    assert said, trace
    assert not any("not recorded" in line or "not traceable" in line for line in trace.messages), trace
    rank = trace.rank()
    assert rank.complete
    for iteration in range(3):
        for chunk in (0, 1):
            assert of_step(rank, iteration, chunk) == {"param", "main_grad", "param_delta", "param_after"}
    assert {identity[0] for identity in rank.all} == {0, 1, 2}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_step_of_each_parameter_follows_from_what_was_recorded(collected, name):
    replay = Replay(collected(PROGRAMS[name]).rank())
    assert not replay.unknown or name == "with a loss scale"  # one step is skipped
    assert len(replay.ratios) >= 10 and replay.worst() < 1.5


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_step_of_the_second_optimizer_is_found_and_a_right_one_is_the_same(collected, name):
    program = PROGRAMS[name]
    reference, again, wrong = (collected(program, "0", lr) for lr in ("1e-2", "1e-2", "2e-2"))

    def check(candidate):
        return run([TTRACE, "check", "--reference", reference.directory, "--candidate", candidate.directory])

    same, different = check(again), check(wrong)
    assert same.returncode == 0, same.stdout
    assert different.returncode == 1, different.stdout
    generator = "" if name in ("the generator first", "closures", "in backward") else "model1."
    assert f"{generator}weight, param_delta: learning rate 0.02, reference 0.01" in different.stdout


def test_the_main_gradient_is_the_one_that_its_own_optimizer_uses(collected):
    program = IN_TURN.replace("train_g()", "train_g(); used = [p.grad.clone() for p in G.parameters()]")
    report = "import json, os; print(json.dumps([p.tolist() for p in used]))"
    trace = collected(program.replace("range(3)", "range(2)") + report)
    weight, bias = json.loads(next(line for line in trace.stdout.splitlines() if line.startswith("[[")))
    rank = trace.rank()
    for name, used in {"weight": weight, "bias": bias}.items():
        recorded = rank.all[1, -1, 1, "forward", "main_grad", name]
        assert numpy.array_equal(recorded, numpy.array(used, dtype="float32"))


NEVER = """
opt_g = torch.optim.Adam(G.parameters(), lr=1e-2)
for _ in range({count}):
    train_d()
"""


def test_an_optimizer_that_does_not_step_is_named_and_waited_for_no_longer(collected):
    trace = collected(NEVER.replace("{count}", "15"), "0-1")
    assert trace.code == 0, trace
    (named,) = (line for line in trace.messages if "not recorded: a step of" in line)
    assert "torch.optim.adam.Adam of 2 parameters ('weight', 'bias'), which took none while another" in named
    assert "stepped 11 times" in named
    assert Replay(trace.rank()).document["unstepped"] == [{"optimizer": "torch.optim.adam.Adam", "parameters": 2}]
    steps = [microbatch for (i, microbatch, _, _, kind, _) in trace.rank().all if (i, kind) == (1, "scalar")]
    assert len(steps) == 2


SAME_RUN = ["--allow-same-run"]


def test_an_optimizer_that_did_not_step_before_the_end_is_named(collected):
    for count in (1, 3):
        trace = collected(NEVER.replace("{count}", str(count)), "0")
        assert trace.code == 0 and trace.rank().complete, trace
        (named,) = (line for line in trace.messages if "not recorded: a step of" in line)
        assert "which took none while another optimizer stepped" in named
        check = run([TTRACE, "check", "--reference", trace.directory, "--candidate", trace.directory, *SAME_RUN])
        assert check.returncode == 2 and check.stdout.startswith(
            "could-not-look: nothing is proved of what these optimizers train, which took no step in all that was "
            "recorded: the reference's torch.optim.adam.Adam of 2 parameters, the candidate's"
        ), check.stdout


IN_MAIN = """
def main():
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-2)
    train_d()
    train_d()
del opt_g
main()
"""


def test_an_optimizer_that_ended_with_main_without_a_step_is_named(collected):
    trace = collected(IN_MAIN, "0")
    (named,) = (line for line in trace.messages if "not recorded: a step of" in line)
    assert "which took none while another optimizer stepped 2 times" in named
    check = run([TTRACE, "check", "--reference", trace.directory, "--candidate", trace.directory, *SAME_RUN])
    assert check.returncode == 2 and "nothing is proved of what these optimizers train" in check.stdout, check.stdout
    assert "in no optimizer" not in check.stdout and "model1.bias, model1.weight: no gradient" in check.stdout


INNER_LOOPS = """
del opt_d, opt_g
outer = torch.optim.SGD(D.parameters(), lr=1e-2)
for _ in range(3):
    outer.zero_grad()
    for task in range(2):
        learner = copy.deepcopy(D)
        inner = torch.optim.SGD(learner.parameters(), lr=1e-2)
        for _ in range(2):
            inner.zero_grad()
            learner(torch.randn(5, 4)).square().mean().backward()
            inner.step()
        (D(torch.randn(5, 4)) - 1).square().mean().backward()
    outer.step()
"""


# An optimizer that the program drops is garbage in a cycle, as one is whose making has kept its frames.
DROPPED_IN_CYCLES = INNER_LOOPS.replace("lr=1e-2)\n        for", "lr=1e-2)\n        inner.itself = inner\n        for")


def test_a_dropped_optimizer_that_garbage_keeps_is_not_waited_for(collected):
    assert "itself" in DROPPED_IN_CYCLES
    trace = collected("import gc\ngc.disable()" + DROPPED_IN_CYCLES)
    assert trace.code == 0 and not [line for line in trace.messages if "step of" in line], trace
    rank = trace.rank()
    for iteration in range(3):
        assert len([1 for (i, _, _, _, kind, _) in rank.all if (i, kind) == (iteration, "scalar")]) == 6


def test_an_iteration_of_inner_loops_ends_with_the_outer_step(collected):
    trace = collected(INNER_LOOPS)
    assert trace.code == 0, trace
    rank = trace.rank()
    for iteration in range(3):
        outer = [c for (i, mb, c, _, kind, name) in rank.all if (i, kind, name) == (iteration, "main_grad", "weight")]
        losses = [c for (i, _, c, _, kind, _) in rank.all if (i, kind) == (iteration, "scalar")]
        assert len(outer) == 3 and len(losses) == 6
