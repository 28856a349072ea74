"""FullyShardedDataParallel: a rank keeps one stretch of each flattened parameter, and its trace says which."""

import itertools

import numpy
import pytest
from conftest import TTRACE, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

# All numbers are small integers and halves, so that every sum is exact in any order.
PROGRAM = """
import sys
import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
    def forward(self, x):
        return self.second(self.first(x))

model = nn.Sequential(nn.Linear(5, 3), Pair(), nn.Linear(3, 1))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.arange(parameter.numel()).remainder(3).view_as(parameter) + 1)
batches = [torch.arange(10.0).view(2, 5).remainder(4) - step for step in range(4)]
options = sys.argv[1:]
if "plain" not in options:
    dist.init_process_group("gloo")
    policy, original = ModuleWrapPolicy({Pair}), "flat" not in options
    model = FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=original)
    batches = batches[dist.get_rank() :: 2]

def reduce(state, whole, part):
    torch.distributed.reduce_scatter_tensor(part, whole)
    part.div_(2)
    if "unreduced" in options and part.numel() == 6 and dist.get_rank() == 1:
        part.copy_(whole[6:])

if "plain" not in options:
    model.register_comm_hook(None, reduce)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for batch in batches:
    (model(batch).sum() / len(batches)).backward()
optimizer.step()
if dist.is_initialized():
    dist.destroy_process_group()
"""

NAMES = ["0.bias", "0.weight", "1.first.bias", "1.first.weight", "1.second.weight", "2.bias", "2.weight"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The plain model's trace, and its annotations."""
    directory = tmp_path_factory.mktemp("plain")
    program = directory / "program.py"
    program.write_text(PROGRAM)
    process = run([TTRACE, "collect", "-o", directory / "trace", "--", *ranks(1, program, "plain")])
    assert process.returncode == 0, process.stderr
    (directory / "annotations.yaml").write_text("parallelism:\n  loss_scale: dp\n")
    return directory


def checked(collected, plain):
    return run([TTRACE, "check", "--reference", plain / "trace", "--candidate", collected.directory, "-a",
                plain / "annotations.yaml", "--all"])  # fmt: skip


@pytest.mark.parametrize("way", ["original", "flat"])
def test_every_stretch_has_its_place_in_the_plain_models_parameter(collect, plain, way):
    collected = collect("--axes", "dp=2", command=ranks(2, plain / "program.py", way))
    assert collected.code == 0 and len(collected.messages) == 1, collected.process.stderr
    of_ranks = [collected.rank(0), collected.rank(1)]
    for kind in ("param", "main_grad", "param_delta", "param_after"):
        assert sorted({*of_ranks[0].names(kind), *of_ranks[1].names(kind)}) == NAMES
        for rank, name in itertools.product(of_ranks, NAMES):
            if (kind, name, -1) in rank.tensors:
                begin, end = rank.mappings[0, -1, 0, "forward", kind, name]["fragment"]["range"]
                assert rank.tensors[kind, name, -1].shape == (end - begin,)
    for name, microbatch in itertools.product(NAMES, (0, 1)):
        gradients = [rank.tensors["param_grad", name, microbatch] for rank in of_ranks]
        assert gradients[0].ndim == (1 if name.endswith("bias") else 2)
        assert name.endswith("bias") or not numpy.array_equal(*gradients), "each is of the rank's own micro-batch"
    process = checked(collected, plain)
    assert process.returncode == 0, process.stdout
    assert " 0 missing" in process.stdout


def test_a_stretch_that_is_never_reduced_fails_on_its_own_rank(collect, plain):
    collected = collect("--axes", "dp=2", command=ranks(2, plain / "program.py", "flat", "unreduced"))
    process = checked(collected, plain)
    assert process.returncode == 1, process.stdout
    lines = process.stdout.splitlines()
    assert lines[1] == "first wrong tensor: 1.first.weight main_grad, iteration 0"
    assert "on rank 1" in lines[2]
    wrong = {line.split("  ")[-1] for line in lines if line.strip().startswith("fail")}
    names, kinds = ("1.first.weight", "1.second.weight"), ("main_grad", "param_delta", "param_after")
    # The gradient of the bias beside it is the same on both ranks.
    assert wrong == {f"{name} {kind}, iteration 0" for name, kind in itertools.product(names, kinds)}


@pytest.mark.parametrize("way", ["original", "flat"])
def test_a_module_with_two_names_has_its_parameters_under_both(collect, tmp_path, way):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("self.second.weight = self.first.weight", "self.second = self.first"))
    reference = collect(command=ranks(1, program, "plain"))
    candidate = collect("--axes", "dp=2", command=ranks(2, program, way))
    assert candidate.code == 0 and len(candidate.messages) == 1, candidate.process.stderr
    assert {"1.first.bias", "1.second.bias"} <= {*candidate.rank(0).names("param"), *candidate.rank(1).names("param")}
    checks = ["--reference", reference.directory, "--candidate", candidate.directory, "-t", "default"]
    process = run([TTRACE, "check", *checks])
    assert process.returncode == 0 and " 0 missing" in process.stdout, process.stdout


def test_a_frozen_parameter_beside_trained_ones_has_no_gradient(collect, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("batches = [", "model[2].bias.requires_grad_(False)\nbatches = [", 1))
    reference = collect(command=ranks(1, program, "plain"))
    candidate = collect("--axes", "dp=2", command=ranks(2, program, "original"))
    assert "2.bias" not in candidate.rank(0).names("param_grad") and "2.weight" in candidate.rank(0).names("param_grad")
    checks = ["--reference", reference.directory, "--candidate", candidate.directory, "-t", "default"]
    process = run([TTRACE, "check", *checks])
    assert process.returncode == 0, process.stdout


# Rank 0 has all of 0.weight and rank 1 all of 1.weight. What clips is taken hold of before the model's first call.
SLICES = """
import functools
import sys
import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
x, y = torch.randn(8, 3), torch.randn(8, 2)
clip = functools.partial(nn.utils.clip_grad_norm_, list(model.parameters()))
rank = 0
if "plain" not in sys.argv:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    clip = model.clip_grad_norm_
    x, y = x.chunk(2)[rank], y.chunk(2)[rank]
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
(model(x) - y).square().mean().backward()
if "scaled" in sys.argv and rank == 1:
    next(p for name, p in model.named_parameters() if name.endswith("1.weight")).grad.mul_(1.01)
clip(0.1)
optimizer.step()
if dist.is_initialized():
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def sliced(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sliced")
    (directory / "program.py").write_text(SLICES)
    process = run([TTRACE, "collect", "-o", directory / "trace", "--", *ranks(1, directory / "program.py", "plain")])
    assert process.returncode == 0, process.stderr
    return directory


@pytest.mark.parametrize(("twin", "first"), [("right", None), ("scaled", "1.weight main_grad")])
def test_a_stretch_that_is_a_whole_parameter_has_the_gradients_of_all_ranks_samples(collect, sliced, twin, first):
    collected = collect(command=ranks(2, sliced / "program.py", twin))
    assert collected.code == 0, collected.process.stderr
    process = run([TTRACE, "check", sliced / "trace", collected.directory, "-t", "default"])
    assert process.returncode == (0 if first is None else 1), process.stdout
    if first is not None:
        assert process.stdout.splitlines()[2] == f"first wrong tensor: {first}, iteration 0"
