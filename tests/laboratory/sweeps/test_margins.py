"""What is said of margins follows from the ratios."""

import math
import random

import pytest

from evaluations import margins, tails


def row(configuration, estimator, name, ratio, expected=0.01):
    return {
        "configuration": configuration,
        "dtype": "bf16",
        "estimator": estimator,
        "kind": "output",
        "name": name,
        "elements": 4,
        "rel_err": ratio * expected,
        "expected": expected,
        "ratio": ratio,
    }


ROWS = [
    row("tp2", "input", "a", 1.0),
    row("tp2", "input", "b", 2.0),
    row("cp2", "input", "a", 0.75),
    row("tp2", "modules", "a", 0.5, 0.02),
    row("tp2", "modules", "b", 0.5, 0.08),
    row("cp2", "modules", "a", 0.25, 0.02),
]


def test_quantiles_and_the_histogram_count_every_tensor():
    (first, second) = margins.quantile_rows(ROWS)
    assert (first["tensors"], first["q50"], first["q99"], first["max"], first["at"], first["of"]) == (
        3,
        1,
        2,
        2,
        "b",
        "tp2",
    )
    assert second["max"] == 0.5
    counts = [
        (line["from"], line["tensors"]) for line in margins.histogram_rows(ROWS, 0.5) if line["estimator"] == "input"
    ]
    assert counts == [(0.5, 1), (1.0, 1), (2.0, 1)]


def test_an_estimator_is_judged_by_what_it_allows_where_nothing_correct_is_wrong():
    first, second = margins.estimator_rows(ROWS)
    assert (first["largest"], first["expects"], first["product"]) == (2, 1, 2)
    assert second["expects"] == pytest.approx(32 ** (1 / 3)) and second["product"] == pytest.approx(32 ** (1 / 3) / 2)


def test_false_alarms_are_counted_per_configuration():
    observed = {line["margin"]: line["exceeding"] for line in margins.false_alarm_rows(ROWS[:3])}
    assert observed == {1.5: 1, 2.0: 0, 2.5: 0, 3.0: 0, 4.0: 0}


def test_a_probability_of_what_was_not_seen_is_bounded():
    assert tails.clopper_pearson(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))  # the rule of three: 3 / n
    assert tails.clopper_pearson(2, 42) == pytest.approx(0.1424, abs=1e-4)
    assert tails.clopper_pearson(7, 7) == 1


def test_a_pareto_tail_is_found():
    generator = random.Random(1)
    values = [generator.paretovariate(4) for _ in range(4000)]
    assert tails.pareto_tail(values, 3) == pytest.approx(3**-4, rel=0.1)
    assert math.isnan(tails.pareto_tail(values, 1)) and math.isnan(tails.pareto_tail([1, 2, 3, 4], 4))
