"""Every bug of the corpus is found, first at the tensor where it was made; its correct twin is the same."""

import pytest

from evaluations.corpus import CASES
from sweeps.runs import References, report_of


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """report(case, ...) runs the case's configuration with further arguments and checks it."""
    directory = tmp_path_factory.mktemp("corpus")
    references = References(directory)
    return lambda case, *arguments: report_of(case.configuration, references, directory, *arguments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.bug)
def test_the_bug_is_found_first_where_it_is(report, case):
    found = report(case, "--bug", case.bug)
    assert found["verdict"] == "fail"
    first, expected = found["root_cause"], case.first
    assert (first["name"], first["kind"]) == (expected.name, expected.kind), first["message"]
    assert (first["iteration"], first["microbatch"]) == (expected.iteration, expected.microbatch)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.bug)
def test_its_correct_twin_is_the_same(report, case):
    correct = report(case)
    assert correct["verdict"] == "pass", correct["root_cause"]
    assert correct["coverage"] == 1
    assert correct["counts"]["pass"] > 500
    assert correct["counts"]["untrusted"] <= 0.05 * correct["counts"]["compared"]
