"""`ttrace run` launches a program once for its reference and all that a tolerance is estimated from, where the program
computes its first iterations again when it is put back to where it was before them."""

import re
from pathlib import Path

import pytest
import yaml
from conftest import TTRACE, python, run

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = Path(__file__).resolve().parent / "programs/replayed.py"


class Verdict:
    def __init__(self, process, folder):
        self.code, self.stdout, self.stderr = process.returncode, process.stdout, process.stderr
        self.folder = folder

    def __repr__(self):
        return f"exit code {self.code}\n{self.stdout}\n{self.stderr}"

    @property
    def launches(self):
        return int(re.search(r"(\d+) runs? of the program", self.stderr)[1])

    def losses(self):
        """Those of each launch."""
        return [line.split()[1:] for line in self.stderr.splitlines() if line.startswith("losses")]

    def tolerances(self):
        return yaml.safe_load((self.folder / ".ttrace/tolerance/tolerance.yaml").read_text())["tensors"]


@pytest.fixture
def verdict(tmp_path):
    """verdict(options of the reference, those of the candidate, number) -> Verdict"""

    def verdict(reference="", candidate=None, number=0):
        folder = tmp_path / str(number)
        folder.mkdir()
        candidate = reference if candidate is None else candidate
        program = " ".join(map(str, python(PROGRAM)))
        job = {"command": f"{program} {reference}", "inputs": [str(PROGRAM)]}
        other = {"name": "candidate", **job, "command": f"{program} {candidate}"}
        (folder / "ttrace.yaml").write_text(yaml.safe_dump({"reference": job, "candidates": [other]}))
        return Verdict(run([TTRACE, "run"], cwd=folder), folder)

    return verdict


def test_a_verdict_takes_two_launches_and_the_tolerance_is_that_of_launches(verdict):
    replayed = verdict()
    assert (replayed.code, replayed.launches) == (0, 2), replayed
    launched = verdict("--iterations 3", number=1)  # it ends before anything could be recorded again
    assert (launched.code, launched.launches) == (0, 6), launched
    assert "the program ended before" in launched.stderr
    assert replayed.tolerances() == launched.tolerances()
    # The program goes on from where it had come to: behind three perturbed runs and the rerun, of an iteration, two
    # light ones behind it, and one that is not recorded.
    reference, candidate = replayed.losses()
    assert reference[:4] == candidate[:4]
    assert reference[4 + 3 * 4 + 3 :] == candidate[3:8]


def test_a_wrong_candidate_takes_a_launch_more_that_shows_that_the_reference_repeats_itself(verdict):
    wrong = verdict(candidate="--wrong")
    assert (wrong.code, wrong.launches) == (1, 4), wrong  # and the candidate's second run
    assert "candidate: loss, scalar, micro-batch 0" in wrong.stdout, wrong


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--counts-late", "did not compute the same again"),  # by a counter, which nothing puts back
        ("--own-batches", "the model is given other data than in its first call"),  # of no loader
    ],
)
def test_launches_take_the_place_of_replays_that_are_not_the_same(verdict, option, why):
    launched = verdict(option)
    assert (launched.code, launched.launches) == (0, 6), launched
    assert why in launched.stderr


def test_a_program_that_fails_in_a_replay_is_launched_again_without(verdict):
    failing = verdict("--insists --iterations 10")
    assert (failing.code, failing.launches) == (0, 7), failing
    assert "launched again" in failing.stderr


def test_a_reference_that_is_another_in_each_launch_gets_its_tolerance_from_launches(verdict):
    other = verdict("--counts-launches")
    assert "the tolerance is made again, from launches" in other.stderr, other
    assert "note: the reference is not reproducible" in other.stderr, other
    assert other.launches == 6
