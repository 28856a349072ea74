"""`--inject`, `--rewrite`, `--inject-params`, `--consistent-init`: each module computes from given values, and only
those of its own errors are seen."""

import json

import numpy
import pytest
from conftest import TTRACE, program, python, ranks, run
from test_processes import RANKS

from ttrace_torch.library import Kind

pytestmark = pytest.mark.usefixtures("warm_programs")

# A chain of three linears; the options make an error in the second: its forward, its backward, or its shape.
CHAIN = """
import argparse, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--wrong", default="")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--steps", type=int, default=1)
options = parser.parse_args()
torch.manual_seed(options.seed)

class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        return 2 * gradient

class Middle(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        if options.wrong in ("forward", "twice"):
            y = 1.25 * y
        return WrongBackward.apply(y) if options.wrong == "backward" else y

class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.first = nn.Linear(6, 6)
        self.middle = Middle(6, 6)
        self.last = nn.Linear(6, 6 if options.wrong != "shape" else 5)
    def forward(self, tokens):
        x = self.embedding(tokens)
        x = torch.tanh(self.first(x))
        if options.wrong == "between":
            x = x.roll(1, 0)
        return self.last(torch.tanh(self.middle(x)))

model = Chain()
if options.wrong == "twice":
    model.last.register_forward_hook(lambda module, inputs, output: 1.5 * output)
if options.bf16:
    model = model.bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(options.steps):
    for microbatch in range(2):
        tokens = torch.randint(11, (4, 3))
        (model(tokens).float() ** 2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def differing(one, other):
    """The identities, in order of recording, whose bits differ between two ranks' files."""
    assert one.all.keys() == other.all.keys()
    return [identity for identity, values in one.all.items() if not numpy.array_equal(values, other.all[identity])]


def seen(identities, *kinds):
    return {(kind, name) for _, _, _, _, kind, name in identities if kind in kinds}


@pytest.mark.parametrize("recompute", ["none", "reentrant", "nonreentrant", "custom"])
def test_a_run_that_is_given_its_own_values_changes_no_bit(collect, recompute):
    command = program("small", "--recompute", recompute, "--order", "1f1b", "--clip", "--steps", "2")
    plain = collect("--iterations", "0,1", command=command)
    again = collect("--iterations", "0,1", "--inject", plain.directory, command=command)
    assert again.code == 0, again.process.stderr
    assert again.stdout == plain.stdout
    # Unlike torch's, a framework's own checkpointing does not say which of a module's two calls it repeats.
    called_twice = (
        {("grad_input", name) for name in ("blocks.0.fc1", "blocks.0.fc1#1")} if recompute == "custom" else set()
    )
    assert seen(differing(plain.rank(), again.rank()), *(kind.text for kind in Kind)) == called_twice


def test_an_error_in_a_forward_is_seen_at_its_module_and_at_what_takes_its_output_alone(collect, script):
    reference = collect(command=script(CHAIN))
    free = collect(command=script(CHAIN, "--wrong", "forward"))
    given = collect("--inject", reference.directory, command=script(CHAIN, "--wrong", "forward"))
    assert given.code == 0, given.process.stderr
    assert ("output", "last") in seen(differing(reference.rank(), free.rank()), "output")
    wrong = differing(reference.rank(), given.rank())
    assert seen(wrong, "input", "output") == {("output", "middle"), ("input", "last")}


def test_an_error_in_a_backward_is_seen_at_its_module_and_what_takes_its_gradient_alone(collect, script):
    reference = collect(command=script(CHAIN))
    given = collect("--inject", reference.directory, command=script(CHAIN, "--wrong", "backward"))
    wrong = differing(reference.rank(), given.rank())
    assert seen(wrong, "input", "output", "grad_input", "grad_output", "param_grad") == {
        ("grad_input", "middle"),
        ("param_grad", "middle.weight"),
        ("param_grad", "middle.bias"),
        ("grad_output", "first"),
    }


def test_an_error_between_two_modules_is_seen_at_the_input_of_the_second(collect, script):
    reference = collect(command=script(CHAIN))
    given = collect("--inject", reference.directory, command=script(CHAIN, "--wrong", "between"))
    wrong = differing(reference.rank(), given.rank())
    assert seen(wrong, "input", "output") == {("input", "middle")}


ODD = """
import collections, dataclasses, torch
from torch import nn
torch.manual_seed(0)

@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor

class InPlace(nn.Module):  # its caller reads the input that it has written to
    def forward(self, x):
        x.mul_(3)

class Same(nn.Module):
    def forward(self, x):
        return x

class Dict(nn.Module):
    def forward(self, x, *, scale):
        return {"double": 2 * x, "more": (x + scale["by"], None)}

class Data(nn.Module):
    def forward(self, pair):
        return Pair(pair.a * pair.b, pair.b)

class Router(nn.Module):  # hands out what it goes on with itself, and nobody else does
    def forward(self, x):
        logits = 2 * x
        return logits, logits.softmax(-1)

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.in_place, self.same, self.dict, self.data = InPlace(), Same(), Dict(), Data()
        self.relu = nn.ReLU(inplace=True)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.first.weight
        self.teacher = nn.Linear(4, 4)
        self.router = Router()
    def forward(self, x):
        x = self.first(x)
        self.in_place(x)
        x = self.same(self.relu(x))
        found = self.dict(x, scale={"by": x.detach() + 1})
        pair = self.data(Pair(found["double"], found["more"][0]))
        with torch.no_grad():
            target = self.teacher(x)
        return self.router(self.tied(self.first(pair.a) + pair.b) - target)[1]

model = Odd()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for microbatch in range(2):
    model(torch.randn(3, 4)).square().sum().backward()
optimizer.step()
print([p.double().sum().item() for p in model.parameters()])
"""


def test_modules_that_mutate_return_or_wrap_their_inputs_are_given_their_values(collect, script):
    plain = collect(command=script(ODD))
    again = collect("--inject", plain.directory, command=script(ODD))
    assert again.code == 0, again.process.stderr
    assert again.stdout == plain.stdout
    assert differing(plain.rank(), again.rank()) == []


def test_what_a_module_is_given_must_fit(collect, script):
    reference = collect(command=script(CHAIN))
    shape = collect("--inject", reference.directory, command=script(CHAIN, "--wrong", "shape"))
    assert shape.code == 2
    text = f"grad_output of '(model)' is float32 [4, 3, 5], and float32 [4, 3, 6] in {reference.directory}"
    assert text in shape.process.stderr
    dtype = collect("--inject", reference.directory, command=script(CHAIN, "--bf16"))
    assert dtype.code == 2
    assert "input of 'first' is bfloat16 [4, 3, 6], and float32 [4, 3, 6]" in dtype.process.stderr
    later = collect("--inject", reference.directory, "--iterations", "1", command=script(CHAIN, "--steps", "2"))
    assert later.code == 2
    assert "nothing could be rewritten in iteration 1" in later.process.stderr


def test_a_run_that_would_be_given_nothing_in_an_iteration_is_not_begun(collect, script):
    command = script(CHAIN, "--steps", "2")
    reference, earlier = collect(command=command), collect("--iterations", "0-1", command=command)
    given = collect("--inject", reference.directory, "--layout", earlier.directory, command=command)
    assert given.code == 2
    reason = "the trace to take values from has no such tensor"
    assert f"nothing could be rewritten on rank 0 in iteration 1: {reason}" in given.process.stderr
    assert not list(given.directory.glob("rank-*")), given


def test_an_earlier_trace_of_the_command_gives_the_layout_and_the_dtype(collect, script):
    reference, earlier = collect(command=script(CHAIN)), collect(command=script(CHAIN, "--bf16"))
    given = collect("--inject", reference.directory, "--layout", earlier.directory, command=script(CHAIN, "--bf16"))
    assert given.code == 0, given.process.stderr
    mine, whole = given.rank().tensors["output", "first", 0], reference.rank().tensors["output", "first", 0]
    rounded = (mine.astype("u4") << 16).view("f4")
    assert numpy.linalg.norm(rounded - whole) < 2.0**-7 * numpy.linalg.norm(whole)


def test_generated_values_have_the_references_norms_on_one_rank_and_on_two(collect, tmp_path):
    annotations = tmp_path / "annotations.yaml"
    annotations.write_text("parallelism:\n  microbatches: {axis: dp, order: interleaved}\n")
    two_ranks = ["-a", annotations, "--axes", "dp=2"]
    plain, plain_two = collect(command=python(RANKS)), collect(*two_ranks, command=ranks(2, RANKS))
    one = collect("--rewrite", plain.directory, command=python(RANKS))
    two = collect("--rewrite", plain.directory, "--layout", plain_two.directory, *two_ranks, command=ranks(2, RANKS))
    assert (one.code, two.code) == (0, 0), one.process.stderr + two.process.stderr
    # What the head makes of its generated input is no more what the embedding gave.
    for microbatch in range(4):
        mine = one.rank().tensors["output", "head", microbatch]
        assert numpy.array_equal(mine, two.rank(microbatch % 2).tensors["output", "head", microbatch // 2])
        free = plain.rank().tensors["output", "head", microbatch]
        assert numpy.linalg.norm(mine - free) > 0.5 * numpy.linalg.norm(free)


def test_parameters_are_set_before_each_iteration(collect, script):
    reference = collect("--iterations", "0,1", command=script(CHAIN, "--steps", "2"))
    given = collect(
        "--inject-params",
        reference.directory,
        "--iterations",
        "0,1",
        command=script(CHAIN, "--steps", "2", "--seed", "5", "--wrong", "backward"),
    )
    assert given.code == 0, given.process.stderr
    parameters = [identity for identity in reference.rank().all if identity[4] == "param"]
    assert len(parameters) == 2 * 7
    for identity in parameters:
        assert numpy.array_equal(given.rank().all[identity], reference.rank().all[identity])
    assert differing(reference.rank(), given.rank())  # the micro-batches are another seed's


def test_masters_follow_parameters_that_are_set(collect, script):
    text = """
import sys, torch
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Linear(3, 2).bfloat16()
for parameter in model.parameters():
    parameter.main_param = torch.nn.Parameter(parameter.detach().float())
model(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
print([parameter.main_param.tolist() for parameter in model.parameters()])
"""
    reference = collect(command=script(text, "0"))
    given = collect("--inject-params", reference.directory, command=script(text, "1"))
    assert given.stdout == reference.stdout


def test_programs_with_different_initialisation_start_equal(collect, script):
    reference, other = collect(command=script(CHAIN)), collect(command=script(CHAIN, "--seed", "3"))
    one = collect("--consistent-init", reference.directory, command=script(CHAIN))
    two = collect("--consistent-init", reference.directory, command=script(CHAIN, "--seed", "3"))
    assert differing(reference.rank(), other.rank())
    assert differing(one.rank(), two.rank()) == []
    assert seen(differing(reference.rank(), one.rank()), "param") == {
        ("param", f"{name}.{part}") for name in ("first", "middle", "last") for part in ("weight", "bias")
    } | {("param", "embedding.weight")}


@pytest.mark.parametrize("place", ["input", "modules"])
def test_a_program_that_is_given_its_parameters_can_be_perturbed(collect, script, place):
    reference, perturb = collect(command=script(CHAIN)), ("--perturb", "1", "--perturb-at", place)
    given = collect("--inject-params", reference.directory, *perturb, command=script(CHAIN))
    assert given.code == 0, given.process.stderr
    (weight,) = (
        values for identity, values in given.rank().all.items() if identity[4:] == ("param", "embedding.weight")
    )
    tensors = given.rank().tensors
    exact = weight[tensors["input", "embedding", 0]]
    assert numpy.abs(tensors["output", "embedding", 0] / exact - 1).max() == pytest.approx(2.0**-23, rel=0.5)


def test_contradicting_options_are_refused_before_anything_runs(collect, script):
    command = script(CHAIN)
    cases = [
        (["--layout", "a"], "--layout: nothing is rewritten"),
        (["--inject", "a", "--rewrite", "a"], "both say what modules are given"),
        (["--inject", "a", "--rewrite", "b"], "expected one trace"),
        (["--inject", "nowhere"], "nowhere: No such file or directory"),
        (["--perturb", "1", "--perturb-at", "rewritten"], "nothing is rewritten"),
    ]
    for options, message in cases:
        refused = collect(*options, command=command)
        assert refused.code == 2
        assert message in refused.process.stderr


def localized(reference, candidate, tmp_path, *options):
    process = run(
        [
            TTRACE,
            "localize",
            "--reference",
            reference,
            "--candidate",
            candidate,
            "-o",
            tmp_path / "second",
            "--json",
            tmp_path / "roots.json",
            "--run-recorded",
            *options,
        ]
    )
    written = tmp_path / "roots.json"
    report = json.loads(written.read_text()) if written.exists() else {}
    return process, {(root["standing"], root["name"], root["kind"]) for root in report.get("roots", [])}


def test_localize_confirms_a_root_and_finds_the_error_in_its_wake(collect, script, tmp_path):
    reference, candidate = collect(command=script(CHAIN)), collect(command=script(CHAIN, "--wrong", "twice"))
    process, roots = localized(reference.directory, candidate.directory, tmp_path)
    assert process.returncode == 1, process.stderr
    assert ("confirmed", "middle", "output") in roots
    assert ("found", "last", "output") in roots
    assert "\ncause (confirmed): middle, output" in process.stdout


def commit_of_new_repository(directory):
    git = ["git", "-C", directory, "-c", "user.name=t", "-c", "user.email=t@t"]
    run(["git", "init", "-q", directory])
    run([*git, "commit", "-q", "--allow-empty", "-m", directory.name])
    return run([*git, "rev-parse", "HEAD"]).stdout.strip()


def test_a_second_run_names_the_commit_of_the_program_wherever_localize_is_typed(
    collect, script, tmp_path, monkeypatch
):
    (tmp_path / "program").mkdir()
    commits = [commit_of_new_repository(tmp_path / name) for name in ("program", "elsewhere")]
    monkeypatch.chdir(tmp_path / "program")
    reference, candidate = collect(command=script(CHAIN)), collect(command=script(CHAIN, "--wrong", "twice"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    process, _ = localized(reference.directory, candidate.directory, tmp_path)
    assert process.returncode == 1, process.stderr
    second, first = (
        json.loads(run([TTRACE, "inspect", trace, "--json"]).stdout)["provenance"]
        for trace in (tmp_path / "second", candidate.directory)
    )
    assert second["directory"].rstrip("/") == str(tmp_path / "program")
    assert second["git_commit"] == first["git_commit"] == commits[0]
    assert commits[0] != commits[1]


def test_localize_runs_nothing_where_nothing_differs_or_a_second_run_would_not_help(collect, script, tmp_path):
    reference, same = collect(command=script(CHAIN)), collect(command=script(CHAIN))
    process, _ = localized(reference.directory, same.directory, tmp_path)
    assert (process.returncode, process.stderr) == (0, "ttrace: no second run: nothing differs\n")
    assert process.stdout.startswith("same\n")
    assert not (tmp_path / "second").exists()


def test_localize_says_what_stands_in_its_way(collect, script, tmp_path):
    reference, candidate = collect(command=script(CHAIN)), collect(command=script(CHAIN, "--wrong", "forward"))
    process, _ = localized(reference.directory, candidate.directory, tmp_path, "--", "false")
    assert process.returncode == 2
    assert "the second run could not be collected, exit code 1" in process.stderr


def test_tolerances_of_rewritten_runs_are_for_rewritten_candidates(collect, script, tmp_path):
    reference = collect(command=script(CHAIN))
    estimated = run(
        [
            TTRACE,
            "estimate-tolerance",
            "-j",
            2,
            "--estimator",
            "rewritten",
            "--reference",
            reference.directory,
            "-o",
            tmp_path / "tolerance.yaml",
            "--",
            *script(CHAIN),
        ]
    )
    assert estimated.returncode == 0, estimated.stderr

    def check(candidate):
        return run(
            [
                TTRACE,
                "check",
                "--reference",
                reference.directory,
                "--candidate",
                candidate.directory,
                "-t",
                tmp_path / "tolerance.yaml",
            ]
        )

    # Each module's answer to rounding, not to its predecessors': wrong by 25 % is wrong, bit-equal is right.
    assert check(collect("--inject", reference.directory, command=script(CHAIN))).returncode == 0
    wrong = check(collect("--inject", reference.directory, command=script(CHAIN, "--wrong", "forward")))
    assert wrong.returncode == 1
    assert "first wrong tensor: middle output" in wrong.stdout
    refused = check(reference)
    assert refused.returncode == 2
    assert "says how far a module by itself may differ" in refused.stderr
