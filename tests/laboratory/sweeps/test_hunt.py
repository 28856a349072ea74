"""A table of tools/hunt says which pairs of programs are run."""

import pytest

from hunting.table import hunts

FOUND = "tools/laboratory/found/dtensor-cumsum/program.py"


def test_lines_with_one_reference_are_one_hunt_with_all_their_candidates():
    (hunt,) = hunts(
        "# program\n\n"
        "optimizers.py | 0 | --optimizer SGD | 2 | --place S0, --place S1\n"
        "optimizers.py | 0 | --optimizer  SGD | 3 | --place S0\n"
    )
    assert hunt.candidates == ((2, "--place S0"), (2, "--place S1"), (3, "--place S0"))
    assert hunt.name == "optimizers --optimizer SGD"


def test_another_number_of_iterations_is_another_reference():
    assert len(hunts("optimizers.py | 0 | | 2 | \noptimizers.py | 0-1 | | 2 | \n")) == 2


def test_a_program_elsewhere_in_the_repository_has_its_folders_name():
    (hunt,) = hunts(f"{FOUND} | 0 | | 2 | , --positive-dim")
    assert (hunt.name, hunt.candidates) == ("dtensor-cumsum", ((2, ""), (2, "--positive-dim")))


@pytest.mark.parametrize("line", ["optimizers.py | 0 | | 2", "optimizers.py | 0 | | two | ", "missing.py | 0 | | 2 | "])
def test_a_line_that_says_no_pair_is_named(line):
    with pytest.raises(ValueError, match="line 2: "):
        hunts(f"# program\n{line}\n")
