"""`ttrace run` on a program whose second iteration, recorded lightly, differs by what its activations alone tell."""

import json
import os
import subprocess

import pytest
import yaml
from commands import COULD_NOT_LOOK, DIFFERENT, HERE, SAME, TTRACE

from sweeps import warm

PROGRAM = HERE / "kinds" / "kinked.py"
ALONE = 1 + 4 + 1  # the reference, its rerun and perturbed runs, a candidate


class Project:
    """A directory with a ttrace.yaml, whose candidates have the names of their mistakes."""

    def __init__(self, directory):
        self.directory = directory
        (directory / "model.txt").write_text("the model")
        self.write()

    def write(self, **settings):
        reference = {"command": warm.command(PROGRAM), "inputs": ["model.txt"]}
        candidate = {
            "name": "{mistake}",
            "matrix": {"mistake": ["none", "dropped", "scaled", "new-each-time"]},
            "command": ["env", "MISTAKE={mistake}", *warm.command(PROGRAM, ranks=2)],
            "inputs": ["model.txt"],
        }
        file = {"reference": reference, "candidates": [candidate], **settings}
        (self.directory / "ttrace.yaml").write_text(yaml.safe_dump(file))

    def __call__(self, candidate, *, code, runs):
        """Checks a candidate, which takes so many runs: its report, and the notes."""
        result = subprocess.run(
            [TTRACE, "run", "--json", "r.json", "--only", candidate],
            cwd=self.directory,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == code, result.stdout + result.stderr
        assert result.stderr.count("ttrace: collected") == runs, result.stderr
        report = json.loads((self.directory / "r.json").read_text())
        return report["candidates"][0]["report"], report["notes"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("kinked"))


def first_of(report):
    first = report["first_wrong"]
    return first["name"], first["kind"], first["iteration"]


def test_a_jump_in_a_light_iteration_is_looked_at_whole(project):
    report, notes = project("none", code=SAME, runs=2 * ALONE)
    assert report["candidate"] == ".ttrace/whole/until-1/candidates/none/trace"
    assert notes == [
        "none: iteration 1 was recorded whole in further runs (5 of the reference and 1 of the candidate): only its "
        "activations tell why 0.weight main_grad, iteration 1 is not the reference's"
    ]
    assert project("none", code=SAME, runs=0) == (report, notes)


def test_a_gradient_that_is_dropped_there_is_no_jump(project):
    report, notes = project("dropped", code=DIFFERENT, runs=3)  # one of them as `localize` makes it
    assert first_of(report) == ("2", "grad_input", 1)
    assert report["wrong_in_second_run"] > 0
    assert "why 0.weight main_grad, iteration 1 is" in notes[0]


def test_what_is_wrong_first_in_a_light_iteration_is_found_among_its_activations(project):
    report, notes = project("scaled", code=DIFFERENT, runs=3)
    assert first_of(report) == ("1", "output", 1)
    assert "why loss scalar, iteration 1, micro-batch 0 is" in notes[0]


def test_where_the_further_run_is_another_the_first_verdict_stands(project):
    report, notes = project("new-each-time", code=COULD_NOT_LOOK, runs=2)
    assert report["candidate"] == ".ttrace/candidates/new-each-time/trace"
    assert "over a kink" in report["questions"][0]["sentence"]
    assert notes[0].startswith("new-each-time: iteration 1 could not be recorded whole, ")
    assert "/until-1/candidates/new-each-time/trace: is not the run of .ttrace/candidates/new-each-time" in notes[0]


def test_without_second_runs_a_jump_is_a_question(project):
    project.write(localize=False)
    report, notes = project("none", code=COULD_NOT_LOOK, runs=0)
    assert report["next"].startswith("ttrace collect ") and notes == []
    project.write()


def test_a_further_recording_is_made_again_with_its_reference(project):
    (project.directory / "model.txt").write_text("another model")
    notes = project("none", code=SAME, runs=2 * ALONE)[1]
    assert [note.split(":")[0] for note in notes] == ["the reference was made again", "none"]
