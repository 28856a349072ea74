"""Modules that behave oddly: what they take and return is recorded as it is, or named."""

import json

import numpy
import pytest
from conftest import TTRACE, program, ranks, run
from rank_file import RankFile

from sweeps import warm
from ttrace_torch.problems import CollectError

pytestmark = pytest.mark.usefixtures("warm_programs")

X = numpy.arange(6, dtype="f4").reshape(2, 3)
SUMS = X.sum(1, keepdims=True) * numpy.ones(3, "f4")

INPUTS = {
    "(model)": X,
    "(model):batch.hidden": X,
    "mutates_input": X,
    "mutates_view": X.reshape(3, 2),
    "returns_input": X,
    "called_twice": X,
    "called_twice#1": SUMS,
    "shares_weight": 3 * SUMS,
    "teacher": X,
    "keywords:x": X,
    "keywords:mask": 2 * X,
    "keywords:state.hidden": X + 1,
    "fails:0": X,  # another program may pass a tensor as the second argument
    "fails:0#1": X,
    "custom:0": X,
    "scripted": X,
    **dict.fromkeys(
        (
            "nested",
            "frozen",
            "late",
            "model_output",
            "mapping",
            "deque",
            "returns_none",
            "subclass",
            "generator",
            "changed_later",
            "views",
        ),
        X,
    ),
}
OUTPUTS = {
    "mutates_input": X + 1,
    "mutates_view": X.reshape(3, 2) + 1,
    "returns_input": X,
    "called_twice": SUMS,
    "called_twice#1": 3 * SUMS,
    "shares_weight": 9 * SUMS,
    "teacher": SUMS,
    "keywords": 2 * X * X + X + 1,
    "nested:a.0": X,
    "nested:a.1.0": X + 1,
    "nested:pair.0": X + 2,
    "nested:7": X + 3,
    "frozen:hidden": X + 1,
    "late:source": X,
    "late:double": 2 * X,
    "model_output:logits": X + 1,
    "mapping:x": X + 1,
    "deque": X + 1,
    "subclass": X + 1,
    "custom": X + 1,
    "fails#1": X + 1,
    "changed_later": X + 1,
    "views:0": (X + 1).T[1:],
    "views:1": numpy.tile(X[:1] + 2, (3, 1)),
    "views:2": 2 * X[..., None],
    "scripted": SUMS,
}
ONES = numpy.ones((2, 3), "f4")
GRAD_OUTPUTS = {
    **dict.fromkeys(
        (
            "(model)",
            "mutates_input",
            "returns_input",
            "shares_weight",
            "keywords",
            "nested:a.1.0",
            "nested:pair.0",
            "nested:7",
            "frozen:hidden",
            "late:double",
            "model_output:logits",
            "mapping:x",
            "deque",
            "subclass",
            "custom",
            "fails#1",
            "scripted",
        ),
        ONES,
    ),
    "mutates_view": numpy.ones((3, 2), "f4"),
    "called_twice#1": 3 * ONES,
    "called_twice": 9 * ONES,
    "late:source": 2 * ONES,
    "changed_later": 100 * ONES,
    "views:0": 6 * numpy.ones((2, 2), "f4"),
    "views:1": numpy.array([[1] * 3, [1] * 3, [0] * 3], "f4"),
    "views:2": ONES[..., None],
}
UNSEEN = "which may hold tensors; expected tensors, or tuples, lists, dicts and dataclasses of them"
NAMED = [
    f"not traceable: output of 'generator', and every other generator, {UNSEEN}",
    f"not traceable: input:1 of 'custom', and every other Cache, {UNSEEN}",
    "not traceable: outputs of 'fails', whose forward raised ValueError",
    "not traceable: what runs inside 'scripted' is compiled by TorchScript",
    "not recorded: calls of 'Linear', which the program only calls without gradients, as in an evaluation",
]


def named(collected):
    prefix = "rank 0: "
    lines = (collected.directory / "rank-00000.warning").read_text().splitlines()
    return [line[len(prefix) :] for line in lines if "no optimizer step was seen" not in line]


def unseen(rank, kind):
    """Names of the modules and tensors that the trace says it could not record."""
    statements = json.loads(rank.attributes["provenance"]).get("not_seen", [])
    return {name for said in statements if kind in said["kinds"] for name in said["tensors"] + said["modules"]}


def test_odd_modules_are_recorded_bit_by_bit_and_what_cannot_be_is_named(collect):
    collected = collect(command=program("odd_modules"))
    assert collected.code == 0 and sorted(named(collected)) == sorted(NAMED), collected.process.stderr
    assert unseen(collected.rank(), "input") == {"custom:1", "scripted.0"}
    assert unseen(collected.rank(), "output") == {"generator", "custom:1", "fails", "scripted.0"}
    tensors = collected.rank().tensors
    for kind, expected in (("input", INPUTS), ("output", OUTPUTS), ("grad_output", GRAD_OUTPUTS)):
        found = {name: values for (found_kind, name, _), values in tensors.items() if found_kind == kind}
        if kind == "output":
            del found["(model)"]  # a sum of all
        if kind == "grad_output":
            del found["nested:a.0"]  # not theirs alone: the input, which they return
        assert found.keys() == expected.keys(), kind
        for name, values in expected.items():
            assert found[name].shape == values.shape and numpy.array_equal(found[name], values), (kind, name)
    assert tensors["param_grad", "shares_weight.weight", 0].tobytes() == (
        tensors["param_grad", "called_twice.weight", 0].tobytes()
    )


@pytest.mark.parametrize("place", ["input", "modules"])
def test_odd_modules_can_be_perturbed_and_keep_their_types(collect, place):
    collected = collect("--perturb", "1", "--perturb-at", place, command=program("odd_modules"))
    assert collected.code == 0 and sorted(named(collected)) == sorted(NAMED), collected.process.stderr
    tensors = collected.rank().tensors
    moved = {name for name, values in OUTPUTS.items() if not numpy.array_equal(tensors["output", name, 0], values)}
    # What is zero stays so; a module that returns what it was given computes nothing.
    by_field = {"frozen:hidden", "late:double", "model_output:logits", "mapping:x"}
    assert moved >= {*by_field, "deque", "nested:pair.0", "views:0"}
    if place == "input":
        # The factor lies within 2^-23 of 1, and the product is rounded.
        assert numpy.abs(tensors["input", "(model)", 0] / numpy.maximum(X, 1) - (X > 0)).max() <= 1.5 * 2.0**-23
    else:
        assert numpy.array_equal(tensors["output", "returns_input", 0], X)


def test_a_container_that_cannot_be_copied_is_named_and_not_left_unperturbed():
    import torch

    from ttrace_torch.members import replaced

    class Stubborn(tuple):
        def __new__(cls, *members):
            return super().__new__(cls, (torch.zeros(1),))

    old, new = torch.ones(2), torch.ones(2)
    stubborn = tuple.__new__(Stubborn, (old,))
    with pytest.raises(CollectError, match="a Stubborn cannot be copied with another tensor in it: "):
        replaced([stubborn], old, new)


def test_a_container_with_a_copy_of_its_own_is_copied_with_another_tensor():
    import copy
    from dataclasses import dataclass

    import torch

    from ttrace_torch.members import replaced

    @dataclass
    class Intermediates:
        hidden: torch.Tensor
        layers: list

        def __copy__(self):
            return Intermediates(self.hidden, [copy.copy(each) for each in self.layers])

    old, new, kept = torch.ones(2), torch.zeros(2), torch.ones(2)
    again = replaced(Intermediates(old, [[kept]]), old, new)
    assert again.hidden is new and again.layers[0][0] is kept


COMPILED = """
import torch
from torch import nn
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
    def forward(self, x):
        y = self.a(x)
        torch._dynamo.graph_break()  # what follows a graph's end is called as Python has it
        return self.b(y.tanh())
class OtherBlock(Block):
    pass
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = Block(), Block(), OtherBlock()
    def forward(self, x):
        return self.third(self.second(self.first(x)))
models = [Model(), Model()]
model, other = models
{compile}
for _ in range(2):
    other(model(torch.ones(2, 3))).sum().backward()
    torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.1).step()
"""
PARTS = """
model.first = torch.compile(model.first, backend='aot_eager')
model.second.compile(backend='aot_eager')
OtherBlock.forward = torch.compile(OtherBlock.forward, backend='aot_eager')
other = nn.Identity()
"""
WHOLE = "model.compile(backend='eager'); other = torch.compile(other, backend='eager')"


def test_a_compiled_module_is_recorded_from_outside_under_its_own_name(collect, script):
    plain = collect(command=script(COMPILED.format(compile=""))).rank()
    for compile_, recorded, hidden, not_seen in (
        (
            PARTS,
            ["first", "second", "third", "(model)", "Identity"],
            [
                "what runs inside 'first'",
                "what runs inside 'second'",
                "what runs inside the function 'Block.forward'",
                "inputs and outputs of 'third.a', 'third.b'",
            ],
            {f"{block}.{inner}" for block in ("first", "second", "third") for inner in ("a", "b")},
        ),
        (
            WHOLE,
            ["(model)", "(model)"],
            ["what runs inside '(model)'"],
            {f"{block}{inner}" for block in ("first", "second", "third") for inner in ("", ".a", ".b")},
        ),
    ):
        collected = collect(command=script(COMPILED.format(compile=compile_)))
        assert collected.code == 0, collected.process.stderr
        told = named(collected)
        assert len(told) == len(hidden) and all(words in text for words, text in zip(hidden, told, strict=True)), told
        rank = collected.rank()
        assert unseen(rank, "output") == not_seen
        assert rank.names("output") == recorded and sorted(rank.names("grad_output")) == sorted(recorded)
        for identity, values in rank.all.items():
            is_plain = identity[2] == 1 or compile_ is WHOLE or identity[4] in ("input", "output", "param")
            if is_plain and identity[5] != "Identity":
                assert numpy.allclose(values, plain.all[identity], rtol=1e-5, atol=1e-7), identity


@pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
@pytest.mark.parametrize(
    "compile_",
    ["model.first.compile(); model = torch.compile(model)", "OtherBlock.forward = torch.compile(OtherBlock.forward)"],
)
def test_with_compilation_disabled_every_module_is_recorded(collect, script, variable, compile_):
    text = COMPILED.format(compile=compile_)
    # PyTorch reads it when it is imported: not in a warm process.
    command = [part for part in script(text) if part != warm.__file__]
    collected = collect(command=command, environment={variable: "1"})
    assert collected.code == 0 and len(collected.messages) == 1, collected.process.stderr
    blocks = [f"{block}{inner}" for block in ("first", "second", "third") for inner in (".a", ".b", "")]
    assert collected.rank().names("output") == 2 * [*blocks, "(model)"]


OTHERS = """
import threading, torch
from torch import nn
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.lazy, self.bypassed = nn.Linear(3, 3), nn.LazyLinear(3), nn.Linear(3, 3)
    def forward(self, x, prompt):
        return self.bypassed.forward(self.lazy(self.inner(x + prompt)))
torch.manual_seed(0)
model = Attention()
prompt = torch.ones(3, requires_grad=True)
outputs = [model(factor * torch.ones(2, 3), prompt) for factor in (1, 2)]
for factor, output in zip((1, 2), outputs):
    (factor * output).sum().backward()
replica = model._replicate_for_data_parallel()
for name, module in model._modules.items():
    replica._modules[name] = module
thread = threading.Thread(target=replica, args=(torch.ones(2, 3), prompt))
thread.start()
thread.join()
"""


def test_what_python_hides_is_named_and_an_input_of_several_micro_batches_gets_the_gradient_of_each(collect, script):
    collected = collect(command=script(OTHERS))
    assert collected.code == 0, collected.process.stderr
    assert sorted(named(collected)) == sorted(
        [
            "not traceable: inputs and outputs of 'bypassed': the parameters got gradients, and the module itself was "
            "never called (but its forward, or a function with its parameters)",
            "not traceable: what runs inside nn.DataParallel on more than one device; expected DistributedDataParallel",
        ]
    )
    rank = collected.rank()
    assert "bypassed" in unseen(rank, "output")
    for kind in ("param", "param_grad"):  # a lazy parameter has its value once the module's own hooks have run
        assert {"lazy.weight", "lazy.bias"} <= set(rank.names(kind))
    tensors = rank.tensors
    first, second = (tensors["grad_input", "(model):1", microbatch] for microbatch in (0, 1))
    assert numpy.abs(first).min() > 0 and numpy.array_equal(2 * first, second)


TRACED = """
import torch
model, criterion = torch.nn.Linear(4, 1), torch.nn.MSELoss()
criterion = torch.jit.trace(criterion.forward, (torch.rand(8, 1), torch.rand(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
criterion(model(torch.randn(8, 4)), torch.rand(8, 1)).backward()
optimizer.step()
"""


def test_a_criterion_whose_forward_is_traced_is_recorded_as_what_it_was_made(tmp_path):
    (tmp_path / "program.py").write_text(TRACED)
    collected = run([TTRACE, "collect", "-o", tmp_path / "trace", "--", *ranks(1, tmp_path / "program.py")])
    assert collected.returncode == 0, collected.stderr
    assert "what runs inside 'TopLevelTracedModule' is compiled by TorchScript" in collected.stderr
    tensors = RankFile(tmp_path / "trace" / "rank-00000.h5").tensors
    assert tensors["output", "TopLevelTracedModule", 0].shape == ()
    assert abs(tensors["main_grad", "weight", -1]).max() > 0
