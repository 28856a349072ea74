"""A training run that a test can edit: forged traces of a reference, of perturbed runs, of a rerun and of candidates,
and the tolerances that the program itself estimates from them."""

import json
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))  # program, traces

from forged import training_run
from program import Program

from traces import record_run

CHECK = ("check", "--reference", "reference", "--candidate", "candidate")


class Project(Program):
    """A directory with a reference, three perturbed runs p1, p2 and p3, and a rerun `again`."""

    def record(self, name, tensors, seed=None, **run):
        shutil.rmtree(self.directory / name, ignore_errors=True)
        provenance = {"command": ["python", "train.py"]}
        if seed is not None:
            provenance["perturb_seed"] = seed
        return record_run(self.directory / name, [tensors], provenance=json.dumps(provenance), **run)

    def estimate_words(self):
        perturbed = ("--perturbed", "p1", "p2", "p3", "--rerun", "again")
        return ("estimate-tolerance", "-o", "t.yaml", "--reference", "reference", *perturbed)

    def estimate(self):
        self(*self.estimate_words(), code=0)
        return (self.directory / "t.yaml").read_text()

    def check(self, *words, code):
        return self(*CHECK, *words, code=code)[0]

    def edit(self, old, new):
        """Edits t.yaml."""
        path = self.directory / "t.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    project.record("reference", training_run())
    for seed in (1, 2, 3):
        project.record(f"p{seed}", training_run(seed), seed)
    project.record("again", training_run())
    return project


@pytest.fixture
def estimated(project):
    project.estimate()
    return project


@pytest.fixture
def ttrace(tmp_path):
    return Program(tmp_path)
