"""Every bug of the corpus is found, first at the tensor where it was made; its correct twin is the same."""

import pytest

from evaluations.corpus import CASES
from evaluations.detection import detection_row
from sweeps.runs import report_of

TWINS = {case.twin.name: case.twin for case in CASES}  # several bugs may have one


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.bug)
def test_the_bug_is_found_first_where_it_is(case, references, directory):
    row = detection_row(case, references, directory)
    print(row)
    assert row["right"], row["message"]


@pytest.mark.parametrize("name", TWINS)
def test_its_correct_twin_is_the_same(name, references, directory):
    correct = report_of(TWINS[name], references, directory)
    assert correct["verdict"] == "pass", correct["root_cause"]
    assert correct["coverage"] == 1
    assert correct["counts"]["pass"] > 500
    assert correct["counts"]["untrusted"] <= 0.05 * correct["counts"]["compared"]
