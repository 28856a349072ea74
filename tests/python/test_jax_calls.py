"""What arrives of a traced JAX program, in whatever order, becomes calls in order of execution. tests/frameworks has
JAX itself."""

import numpy
import pytest

import ttrace
from ttrace._jax_calls import Site, arranged


def arrivals(*values, comes_again=False):
    """`values`: number, kind, name and numbers of a site, and the site of its value where it is a gradient."""
    return [
        (Site(number, kind, name, of=of[0] if of else -1, comes_again=comes_again), numpy.float32(value))
        for number, kind, name, value, *of in values
    ]


def lines(found):
    return [(one.name, one.site.kind, one.microbatch, float(one.value)) for one in found]


def test_sites_are_in_the_order_in_which_they_were_traced():
    arrived = arrivals(
        (3, "grad_output", "a", 3, 0), (2, "scalar", "loss", 2), (0, "output", "a", 0), (1, "output", "b", 1)
    )
    assert lines(arranged(arrived)) == [
        ("a", "output", 0, 0),
        ("b", "output", 0, 1),
        ("loss", "scalar", 0, 2),
        ("a", "grad_output", 0, 3),
    ]


def test_what_runs_in_a_loop_is_numbered_and_its_gradients_come_backwards():
    forward = [(site, "output", name, 10 * turn + site) for turn in range(2) for site, name in enumerate("ab")]
    backward = [(site, "grad_output", name, 10 * turn + site, of) for turn in (1, 0) for site, name, of in
                ((3, "b", 1), (4, "a", 0))]  # fmt: skip
    assert lines(arranged(arrivals(*forward, (2, "scalar", "loss", 2), *backward))) == [
        ("a", "output", 0, 0),
        ("b", "output", 0, 1),
        ("a#1", "output", 0, 10),
        ("b#1", "output", 0, 11),
        ("loss", "scalar", 0, 2),
        ("b#1", "grad_output", 0, 13),
        ("a#1", "grad_output", 0, 14),
        ("b", "grad_output", 0, 3),
        ("a", "grad_output", 0, 4),
    ]


def test_each_loss_ends_a_microbatch_whether_it_is_traced_once_or_again():
    once = [(site, kind, name, 10 * turn + site, *of) for turn in range(2) for site, kind, name, *of in
            ((0, "output", "a"), (1, "scalar", "loss"), (2, "grad_output", "a", 0))]  # fmt: skip
    again = [(site + 3 * turn, kind, name, 10 * turn + site, *(3 * turn + base for base in of)) for turn in range(2)
             for site, kind, name, *of in
             ((0, "output", "a"), (1, "scalar", "loss"), (2, "grad_output", "a", 0))]  # fmt: skip
    expected = [
        ("a", "output", 0, 0),
        ("loss", "scalar", 0, 1),
        ("a", "grad_output", 0, 2),
        ("a", "output", 1, 10),
        ("loss", "scalar", 1, 11),
        ("a", "grad_output", 1, 12),
    ]
    assert lines(arranged(arrivals(*once))) == expected
    assert lines(arranged(arrivals(*again))) == expected


def test_a_module_that_is_called_twice_has_two_names_and_its_gradients_theirs():
    values = [(0, "output", "a", 0), (1, "output", "a", 1), (2, "scalar", "loss", 2)]
    values += [(3, "grad_output", "a", 3, 1), (4, "grad_output", "a", 4, 0)]
    assert lines(arranged(arrivals(*values))) == [
        ("a", "output", 0, 0),
        ("a#1", "output", 0, 1),
        ("loss", "scalar", 0, 2),
        ("a#1", "grad_output", 0, 3),
        ("a", "grad_output", 0, 4),
    ]


def test_what_backward_computes_again_is_recorded_once():
    forward = arrivals((0, "output", "a", 5), (0, "output", "a", 7), comes_again=True)
    loss = arrivals((1, "scalar", "loss", 1))
    gradients = arrivals((2, "grad_output", "a", 2, 0), (2, "grad_output", "a", 3, 0))
    assert [line[:2] for line in lines(arranged([*forward, *loss, *forward[::-1], *gradients]))] == [
        ("a", "output"),
        ("a#1", "output"),
        ("loss", "scalar"),
        ("a#1", "grad_output"),
        ("a", "grad_output"),
    ]


def test_the_last_transformation_of_a_gradient_is_the_step_and_its_update_what_the_parameter_changed_by():
    values = [(0, "main_grad", "w", 8), (1, "param_delta", "w", 4), (2, "main_grad", "w", 4), (3, "param", "w", 1)]
    values += [(4, "param_delta", "w", -0.4), (5, "param_after", "w", 0.5)]
    assert lines(arranged(arrivals(*values))) == [
        ("w", "param", None, 1),
        ("w", "main_grad", None, 4),
        ("w", "param_delta", None, -0.5),
        ("w", "param_after", None, 0.5),
    ]


def test_calls_that_no_number_of_losses_divides_are_refused():
    values = [(0, "output", "a", turn) for turn in range(3)] + [(1, "scalar", "loss", turn) for turn in range(2)]
    with pytest.raises(ttrace.InputError, match="^a output: 3 calls and 2 losses in one iteration"):
        arranged(arrivals(*values))
