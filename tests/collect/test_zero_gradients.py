"""What begins at zero has no gradient in the first iteration: a mistake with it is not the same there, and is found in
the second."""

import pytest
from conftest import TTRACE, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

# Adapters as LoRA has them: B begins at zero, and A has no gradient before its first step.
LORA = """
import os
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        nn.init.zeros_(self.lora_B.weight)
    def forward(self, x):
        return torch.tanh(self.base(x) + self.lora_B(self.lora_A(x)))
model = nn.Sequential(Layer(), Layer(), Layer())
inputs = torch.randn(3, 4, 8).chunk(world, 1)
net = model
if world > 1:
    import torch.distributed.nn
    torch.distributed.init_process_group("gloo")
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [IGNORED])
    net = DistributedDataParallel(model)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
for x in inputs[rank]:
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
if world > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def checked(warm_programs, tmp_path_factory):
    """checked(iterations, parameter that is not reduced) -> the process of the check of two ranks"""
    directory = tmp_path_factory.mktemp("lora")

    def collect(name, iterations, ignored, count):
        program, trace = directory / f"{name}.py", directory / f"{name}-{iterations}"
        program.write_text(LORA.replace("IGNORED", f'"{ignored}"' if ignored else ""))
        if not trace.exists():
            asked = ["--iterations", iterations] if iterations else []
            collected = run([TTRACE, "collect", "-o", trace, *asked, "--", *ranks(count, program)])
            assert collected.returncode == 0, collected.stderr
        return trace

    def checked(iterations, ignored=""):
        reference = collect("reference", iterations, "", 1)
        candidate = collect("wrong" if ignored else "right", iterations, ignored, 2)
        tolerance = directory / f"{iterations}.yaml"
        if not tolerance.exists():
            estimate = [TTRACE, "estimate-tolerance", "-o", tolerance, "--reference", reference, "--seeds", "3"]
            estimated = run([*estimate, "--", *ranks(1, directory / "reference.py")])
            assert estimated.returncode == 0, estimated.stderr
        return run([TTRACE, "check", "--reference", reference, "--candidate", candidate, "-t", tolerance])

    return checked


@pytest.mark.parametrize("ignored", ["", "1.lora_A.weight"])
def test_gradients_that_are_zero_in_the_first_iteration_prove_nothing_of_their_parameters(checked, ignored):
    check = checked("0", ignored)
    assert check.returncode == 2, check.stdout
    assert check.stdout.splitlines()[0].endswith(
        "nothing is proved of #.lora_A.weight, whose gradients are zero on both sides in all that was recorded; "
        "expected iterations in which they are not: --iterations 0-1"
    ), check.stdout


def test_what_is_to_be_recorded_further_can_be_typed(checked):
    lines = checked("0").stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("next: ")]
    assert line.count("ttrace collect -o ") == 2 and line.count(" --iterations 0-1 -- ") == 2, line


def test_recording_goes_on_by_itself_until_a_mistake_shows(checked):
    right, wrong = checked(""), checked("", "1.lora_A.weight")
    assert right.returncode == 0 and "2 iterations, SGD" in right.stdout, right.stdout
    assert wrong.returncode == 1 and "first wrong tensor: 1.lora_A.weight main_grad, iteration 1" in wrong.stdout, (
        wrong.stdout
    )


def test_in_the_second_iteration_a_mistake_is_found_and_the_right_run_is_the_same(checked):
    right, wrong = checked("0-1"), checked("0-1", "1.lora_A.weight")
    assert right.returncode == 0, right.stdout
    assert wrong.returncode == 1 and "first wrong tensor: 1.lora_A.weight main_grad, iteration 1" in wrong.stdout, (
        wrong.stdout
    )
