"""Follows the page of the first bad commit to the letter, in a repository that knows nothing of ttrace."""

import json
import os
import re
import subprocess

import stranger
import yaml
from pages import MANUAL, ROOT, follow, session_path


def without_last_digits(text):
    """How many of hundreds of tensors differ is a matter of the processor's rounding: some are near their tolerance."""
    return re.sub(r"\b[23]\d\d\b", "some hundred", text)


def test_a_stranger_finds_the_commit_at_the_first_try_and_sees_it_in_the_pull_request(tmp_path, warm_programs):
    repository = tmp_path / "letters"
    stranger.make(repository)
    environment = {"OMP_NUM_THREADS": "1", "PATH": session_path([warm_programs])}
    follow(MANUAL / "first-bad-commit.md", repository, environment, timeout=900, as_compared=without_last_digits)

    # The action's step on a commit that bisecting has looked at: what that left is used again.
    git = ["git", "-C", repository]
    subprocess.run([*git, "checkout", "-q", ":/One all-reduce"], check=True)
    action = yaml.safe_load((ROOT / "tools" / "ci" / "action" / "action.yml").read_text())
    (check,) = (step["run"] for step in action["runs"]["steps"] if step.get("id") == "check")
    output, summary = tmp_path / "output", tmp_path / "summary.md"
    variables = {
        **environment,
        "FILE": "ttrace.yaml",
        "REFRESH": "",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    script = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", check]
    ran = subprocess.run(script, cwd=repository, env={**os.environ, **variables}, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert output.read_text() == "verdict=different\n"
    errors = [line for line in ran.stdout.splitlines() if line.startswith("::error ")]
    assert errors[0].startswith("::error file=letters/parallel.py,line=48,"), ran.stdout
    (report,) = json.loads((repository / "ttrace.json").read_text())["candidates"]
    assert report["verdict"] == "different"
