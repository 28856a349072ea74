"""A step that a loss scaler skips ends the iteration, and its record shows that nothing was updated."""

import numpy
import pytest

pytestmark = pytest.mark.usefixtures("warm_programs")

PLAIN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for step, factor in enumerate((1.0, float("inf"), 2.0)):
    for _ in range(2):
        scaler.scale((model(torch.ones(1, 3)) * factor).sum()).backward()
    if {unscale}:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""

# As Megatron-LM: gradients and masters beside the parameters, and a step that returns early.
WRAPPED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(3, 2).half()

class Wrapper:
    def __init__(self):
        self.scale = 4.0
        for parameter in model.parameters():
            parameter.main_grad = torch.zeros(parameter.shape)
            parameter.main_param = nn.Parameter(parameter.detach().float())
            parameter.register_post_accumulate_grad_hook(self.accumulate)
        self.inner = torch.optim.SGD([parameter.main_param for parameter in model.parameters()], lr=1.0)

    def accumulate(self, parameter):
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None

    def step(self):
        found = torch.zeros(1)
        gradients = [parameter.main_grad for parameter in model.parameters()]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.tensor(1 / self.scale))
        if found:
            self.scale /= 2
            return False
        for parameter in model.parameters():
            parameter.main_param.grad = parameter.main_grad
        self.inner.step()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.main_param)
        return True

    def zero_grad(self):
        for parameter in model.parameters():
            parameter.main_grad.zero_()

optimizer = Wrapper()
for step, factor in enumerate((1.0, float("inf"), 2.0)):
    optimizer.zero_grad()
    for _ in range(2):
        ((model(torch.ones(1, 3).half()) * factor).sum() * optimizer.scale).backward()
    optimizer.step()
"""

PROGRAMS = {
    "GradScaler": PLAIN.format(unscale=False),
    "GradScaler, unscaled before": PLAIN.format(unscale=True),
    "a wrapper that returns early": WRAPPED,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_skipped_step_ends_its_iteration_and_updates_nothing(collect, script, name):
    collected = collect("--iterations", "0-2", command=script(PROGRAMS[name]))
    assert collected.code == 0 and len(collected.messages) == 1, collected.process.stderr
    rank = collected.rank()
    assert {identity[:2] for identity in rank.all} == {(step, mb) for step in range(3) for mb in (-1, 0, 1)}

    def of(kind, step):
        return rank.all[step, -1, 0, "forward", kind, "weight"]

    # Two micro-batches of ones, without the loss scale.
    assert (of("main_grad", 0) == 2).all() and (of("main_grad", 2) == 4).all()
    assert not numpy.isfinite(of("main_grad", 1)).any()
    assert numpy.allclose(of("param_delta", 0), -2) and numpy.allclose(of("param_delta", 2), -4)
    assert (of("param_delta", 1) == 0).all()
    for step in range(3):
        expected = of("param", step) + of("param_delta", step)
        assert numpy.allclose(of("param_after", step), expected, atol=0.01), step
    assert numpy.array_equal(of("param_after", 1), of("param", 1))


def test_a_program_whose_last_step_is_skipped_ends_with_a_whole_trace(collect, script):
    program = PROGRAMS["GradScaler"].replace('float("inf"), 2.0', 'float("inf")')
    collected = collect("--iterations", "0,1", command=script(program))
    assert collected.code == 0 and len(collected.messages) == 1, collected.process.stderr
    rank = collected.rank()
    assert rank.complete
    assert (rank.all[1, -1, 0, "forward", "param_delta", "weight"] == 0).all()


TWO_OPTIMIZERS = """
import torch
from torch import nn
models = [nn.Linear(3, 2), nn.Linear(2, 1)]
model = nn.Sequential(*models)
for parameter in model.parameters():
    nn.init.constant_(parameter, 1)
optimizers = [{optimizers}]
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for factor in (1.0, float("inf")):
    scaler.scale(model(torch.ones(1, 3)).sum() * factor).backward()
    for optimizer in optimizers:
        {step}
    scaler.update()
    model.zero_grad()
"""
SCALED = [
    ("[torch.optim.SGD(m.parameters(), lr=1.0) for m in models]", "scaler.step(optimizer)"),
    ("[torch.optim.SGD(m.parameters(), lr=1.0, fused=True) for m in models]", "scaler.step(optimizer)"),
    (
        "[torch.optim.SGD(m.parameters(), lr=1.0) for m in models]",
        "scaler.unscale_(optimizer); nn.utils.clip_grad_norm_((p for g in optimizer.param_groups for p in "
        "g['params']), 1e-3); scaler.step(optimizer)",
    ),
]


@pytest.mark.parametrize("optimizers, step", SCALED, ids=["implicit", "fused", "clipped"])
def test_main_gradients_have_no_loss_scale_whichever_optimizer_steps_first(collect, script, optimizers, step):
    text = TWO_OPTIMIZERS.format(optimizers=f"*{optimizers}", step=step)
    collected = collect("--iterations", "0,1", command=script(text))
    assert collected.code == 0 and len(collected.messages) == 1, collected.process.stderr
    rank = collected.rank()
    main_grads = {
        identity[5]: values for identity, values in rank.all.items() if identity[4] == "main_grad" and identity[0] == 0
    }
    assert main_grads.keys() == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert (main_grads["0.weight"] == 1).all() and (main_grads["1.weight"] == 4).all() and main_grads["1.bias"] == 1
    skipped = rank.all[1, -1, 0, "forward", "param_delta", "1.weight"]
    assert (skipped == 0).all() and not numpy.isfinite(rank.all[1, -1, 0, "forward", "main_grad", "1.weight"]).any()


CLOSURE = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(1, 3)).sum()
    loss.backward()
    return loss

for _ in range(2):
    optimizer.step({closure})
"""


@pytest.mark.parametrize("closure", ["closure", "closure=closure"])
def test_a_step_that_runs_the_backward_itself_uses_the_gradients_that_this_leaves(collect, script, closure):
    collected = collect("--iterations", "0,1", command=script(CLOSURE.format(closure=closure)))
    assert collected.code == 0 and len(collected.messages) == 1, collected.process.stderr
    for step in range(2):
        weight = {
            key[4]: values for key, values in collected.rank().all.items() if (key[0], key[5]) == (step, "weight")
        }
        assert (weight["main_grad"] == 1).all() and numpy.allclose(weight["param_delta"], -1)
