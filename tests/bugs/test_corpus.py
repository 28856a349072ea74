"""Every bug of the corpus is found, first at the tensor where it was made, and named; its correct twin is the same."""

import shutil
import tempfile
from pathlib import Path

import pytest

from evaluations.corpus import CASES
from evaluations.detection import detection_row
from sweeps.runs import check, collect, self_check

TWINS = {case.twin.name: case.twin for case in CASES}  # several bugs may have one


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.bug)
def test_the_bug_is_found_first_where_it_is_and_named(case, references, directory):
    row = detection_row(case, references, directory)
    print(row)
    assert row["right"], row["message"]
    assert row["diagnosis"] == row["mechanism"], row["sentence"]


@pytest.mark.parametrize("name", TWINS)
def test_its_correct_twin_is_the_same_as_the_reference_and_right_by_itself(name, references, directory):
    twin = TWINS[name]
    reference = references.of(twin.model, twin.dtype)
    home = Path(tempfile.mkdtemp(dir=directory))
    collect(twin, home)
    correct = check(home, reference, reference / "tolerance.yaml")
    assert correct["verdict"] == "same", correct["root_cause"]
    assert correct["coverage"] == 1
    assert correct["counts"]["pass"] > 500
    assert correct["counts"]["untrusted"] <= 0.05 * correct["counts"]["compared"]
    alone = self_check(home)
    assert alone["verdict"] == "same", alone["root_cause"]
    assert alone["counts"]["pass"] > 50
    shutil.rmtree(home)
