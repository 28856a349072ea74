"""Follows the page of each job to the letter, in an empty folder."""

import shutil

import pytest
from pages import MANUAL, blocks, follow, session_path

JOBS = (
    "loss-curves",
    "gate-a-fork",
    "port-a-model",
    "convert-a-checkpoint",
    "trainer-and-rollout",
    "watch-a-job",
    "bad-node",
)
PROGRAMS = MANUAL.parents[1] / "tests" / "manual" / "programs"


@pytest.mark.parametrize("job", JOBS)
def test_the_page_of_a_job_can_be_followed(tmp_path, warm_programs, job):
    (program,) = blocks(MANUAL / "tutorial.md", "python")
    (tmp_path / "train.py").write_text(program)
    for path in PROGRAMS.iterdir():
        shutil.copy(path, tmp_path)
    environment = {"OMP_NUM_THREADS": "1", "PATH": session_path([warm_programs])}
    follow(MANUAL / f"{job}.md", tmp_path, environment, timeout=300)


def test_the_readme_leads_to_every_job():
    readme = (MANUAL.parents[1] / "README.md").read_text()
    first_screen = "\n".join(readme.splitlines()[:45])
    assert [job for job in JOBS if f"src/manual/{job}.md" not in first_screen] == []
