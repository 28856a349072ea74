"""The damages that were drawn before anyone looked, and what counts as a true diagnosis of one."""

import json

from evaluations import damages

SCALED = {
    "mechanism": "output",
    "change": "scaled",
    "model": "gpt",
    "sizes": {"tp": 2},
    "module": "decoder.layers.0.mlp.linear_fc1",
    "factor": 0.5,
    "rank": None,
    "first": ["decoder.layers.0.mlp.linear_fc1", "output"],
}


def test_the_table_is_what_was_drawn():
    table = json.loads(damages.TABLE.read_text())
    assert table == damages.drawn(1) + damages.drawn(2) and len(table) == 160


def test_a_diagnosis_is_true_when_it_says_what_was_done():
    assert damages.is_true(SCALED, "uniform-factor", "every element is 0.5 times the reference's")
    assert not damages.is_true(SCALED, "uniform-factor", "every element is 0.25 times the reference's")
    assert not damages.is_true(SCALED, "permuted-blocks", "blocks 0 and 1 are swapped")
    assert not damages.is_true(SCALED, "region", "wrong at 0-3 of dimension 0 only (4 of 32), right elsewhere")
    on_one_rank = {**SCALED, "rank": 1}
    assert damages.is_true(on_one_rank, "rank-factor", "the reference's times a number: 0.5 on rank 1")
    assert not damages.is_true(on_one_rank, "rank-factor", "the reference's times a number: 0.5 on rank 0")
    assert not damages.is_true(on_one_rank, "uniform-factor", "every element is 0.5 times the reference's")
    epsilon = {**SCALED, "mechanism": "epsilon", "change": None, "size": 0.0983}
    otherwise = "its module is configured otherwise: "
    assert damages.is_true(epsilon, "configured-otherwise", otherwise + "eps 0.0983, reference 1e-05")
    assert not damages.is_true(epsilon, "configured-otherwise", otherwise + "p 0.1, reference 0.2")
    # Noise looks like nothing known: any diagnosis but that of its place would be wrong.
    noisy = {**SCALED, "change": "noisy", "rank": 1}
    assert damages.is_true(noisy, "region", "wrong in the part of rank 1 only (1 of 2 parts), right elsewhere")
    assert not damages.is_true(noisy, "stale", "it is the value of iteration 0, micro-batch 0")
