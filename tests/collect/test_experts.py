"""Mixtures of experts of Hugging Face transformers, by stand-ins: no row is compared whose place is a matter of the
implementation, and of a router is recorded what it ranks experts by."""

import json

import numpy
import pytest
from conftest import TTRACE, program, run

pytestmark = pytest.mark.usefixtures("warm_programs")

ACTIVATIONS = ["input", "output", "grad_output", "grad_input"]
BIAS = numpy.array([0, 0.5, 0.25, -0.5], "f4")


@pytest.fixture
def experts(collect):
    def experts(*options):
        collected = collect(command=program("experts", *options))
        assert collected.code == 0, collected
        return collected

    return experts


def check(reference, candidate):
    """Exit code and report."""
    file = candidate.directory.parent / "report.json"
    directories = ["--reference", reference.directory, "--candidate", candidate.directory]
    checked = run([TTRACE, "check", *directories, "--json", file])
    return checked.returncode, json.loads(file.read_text())


def names(collected, kind="output"):
    return set(collected.rank().names(kind))


def not_seen(collected):
    return json.loads(collected.rank().attributes["provenance"]).get("not_seen", [])


def test_what_experts_compute_inside_is_not_compared_and_the_trace_says_so(experts):
    reference, candidate = experts(), experts("--order", "choices")
    assert {"experts", "gate:2"} <= names(candidate) and "experts.act_fn" not in names(candidate)
    assert {"gate.weight", "experts.up_proj"} == names(candidate, "param_grad") == names(candidate, "param")
    (statement,) = not_seen(candidate)
    assert statement["reason"] == "the rows inside are in the order of the experts"
    assert (statement["modules"], statement["kinds"]) == (["experts.act_fn"], ACTIVATIONS)
    assert (
        "ttrace: warning: rank 0: not recorded: what runs inside 'experts', and every other Experts, in the order of "
        "the experts"
    ) in candidate.messages

    code, report = check(reference, candidate)
    assert (code, report["verdict"], report["counts"]["missing"]) == (0, "same", 0)

    code, report = check(reference, experts("--order", "choices", "--wrong"))
    assert (code, report["verdict"]) == (1, "different")
    assert (report["root_cause"]["name"], report["root_cause"]["kind"]) == ("experts", "output")


def test_experts_of_the_programs_own_are_recorded_as_all_modules_are(experts):
    own = experts("--own")
    assert "experts.act_fn" in names(own) and not_seen(own) == []
    assert check(own, experts("--own"))[0] == 0
    assert check(own, experts("--own", "--order", "choices"))[0] == 1


def test_a_trace_with_what_is_inside_the_experts_and_one_without_are_the_same(experts):
    whole, without = experts("--own"), experts()
    for reference, candidate in ((whole, without), (without, whole)):
        code, report = check(reference, candidate)
        assert (code, report["counts"]["missing"], report["counts"]["not_seen"]) == (0, 0, len(ACTIVATIONS))


def test_experts_to_which_other_ranks_send_tokens_have_no_gradient_of_one_microbatch(experts):
    reference = experts()
    sharing, exchanging = experts("--ranks", "sharing"), experts("--ranks", "exchanging")
    assert names(sharing, "param_grad") == names(reference, "param_grad")
    assert names(exchanging, "param_grad") == {"gate.weight"}
    assert "experts.up_proj" in names(exchanging, "main_grad")
    assert {
        "reason": "the gradient of the tokens that came to a rank, of whichever micro-batch",
        "kinds": ["param_grad"],
        "iterations": [0],
        "chunk": 0,
        "tensors": ["experts.up_proj"],
        "modules": [],
    } in not_seen(exchanging)
    code, report = check(reference, exchanging)
    assert (code, report["counts"]["missing"], report["counts"]["not_seen"]) == (0, 0, 1)


@pytest.mark.parametrize("router", ["BiasedRouter", "GivenBiasRouter", "GroupedRouter"])
def test_a_router_that_does_not_rank_experts_by_its_logits_says_what_it_ranks_them_by(experts, router):
    rank = experts("--router", router).rank()
    found = {name: values for (kind, name, _), values in rank.tensors.items() if kind == "output"}
    logits, scores = found["gate:0"], found["gate:scores"]
    assert scores.dtype == numpy.float32
    numpy.testing.assert_allclose(scores, 1 / (1 + numpy.exp(-logits)) + BIAS, rtol=1e-6)
    assert found.get("gate:groups", numpy.array([])).tolist() == ([2, 1, 2] if router == "GroupedRouter" else [])


@pytest.mark.parametrize("router", ["TopKRouter", "UnknownRouter"])
def test_of_a_router_that_ranks_by_logits_or_in_an_unknown_way_nothing_is_added(experts, router):
    assert {name for name in names(experts("--router", router)) if name.startswith("gate:")} == {
        "gate:0",
        "gate:1",
        "gate:2",
    }
