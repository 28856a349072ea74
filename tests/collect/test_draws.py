"""What a trace says of the calls in which a program drew random numbers."""

import json

import pytest
from conftest import HERE, python

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = HERE / "programs" / "draws.py"


def draws_of(collected):
    assert collected.code == 0, collected
    document = json.loads(collected.rank().attributes["provenance"])["draws"]
    modules, calls = document["modules"], document["calls"]
    return [(modules[place], kind, pass_, state) for place, kind, _, _, _, pass_, state in calls]


def test_a_draw_is_that_of_the_innermost_call_and_of_what_comes_after_it(collect):
    draws = draws_of(collect(command=python(PROGRAM)))
    assert {(name, kind) for name, kind, pass_, _ in draws if pass_ == "forward"} == {
        ("block.off", "input"),
        ("block.down", "input"),
        ("block.drop", "input"),
        ("block.drop", "output"),
        ("block", "output"),
        ("twice.inner", "output"),
    }


def test_a_recomputation_draws_from_the_state_of_its_forward(collect):
    draws = draws_of(collect(command=python(PROGRAM)))
    states = {pass_: state for name, kind, pass_, state in draws if name == "twice.inner"}
    assert set(states) == {"forward", "recompute"}
    assert states["forward"] == states["recompute"]


def test_states_are_those_of_another_run_from_the_same_seed(collect):
    assert draws_of(collect(command=python(PROGRAM))) == draws_of(collect(command=python(PROGRAM)))
