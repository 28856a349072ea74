"""`ttrace run` on real training processes, and the examples of tools/ci, run as far as this machine goes."""

import json
import os
import signal
import subprocess
import sys
import time

import yaml
from conftest import BUILD, ROOT

TTRACE = BUILD / "bin" / "ttrace"
EXAMPLES = ROOT / "tools" / "ci"


def as_a_runner(checkout, script, **environment):
    """Runs a step as GitHub's and GitLab's runners do: bash, which ends at the first failure."""
    return checkout("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script, **environment)


def test_the_steps_of_the_github_action(checkout, tmp_path):
    action = yaml.safe_load((EXAMPLES / "action" / "action.yml").read_text())
    scripts = {step["name"]: step["run"] for step in action["runs"]["steps"] if "run" in step}
    assert list(scripts) == ["Install", "Check"]
    path, summary, output = tmp_path / "path", tmp_path / "summary.md", tmp_path / "output"
    as_a_runner(
        checkout,
        scripts["Install"],
        GITHUB_ACTION_PATH=str(checkout.directory / "tools" / "ci" / "action"),
        GITHUB_PATH=str(path),
    )
    # With what the expressions of `env` come to on a pull request.
    result = as_a_runner(
        checkout,
        scripts["Check"],
        PATH=f"{path.read_text().strip()}:{os.environ['PATH']}",
        FILE="tools/ci/ttrace.yaml",
        REFRESH="",
        GITHUB_STEP_SUMMARY=str(summary),
        GITHUB_OUTPUT=str(output),
    )
    assert result.stdout.splitlines()[-1] == "2 candidates compute what the reference computes."
    assert output.read_text() == "verdict=same\n"
    assert "\n| tp2-dp1 | same | 1370 | 0 | 0 | " in summary.read_text()
    report = json.loads((checkout.directory / "ttrace.json").read_text())
    assert [candidate["report"]["coverage"] for candidate in report["candidates"]] == [1, 1]
    assert (checkout.directory / "ttrace.xml").read_text().startswith("<?xml")
    # What is kept, the steps after it find.
    for step in action["runs"]["steps"]:
        for kept in step.get("with", {}).get("path", "").splitlines():
            assert (checkout.directory / kept).exists(), kept


def test_the_github_workflow_uses_the_action():
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    (uses,) = (step for step in workflow["jobs"]["ttrace"]["steps"] if "/ttrace/" in step.get("uses", ""))
    action = yaml.safe_load((EXAMPLES / "action" / "action.yml").read_text())
    assert uses["uses"].startswith("OWNER/ttrace/tools/ci/action@")
    assert set(uses["with"]) <= set(action["inputs"])


def test_the_script_of_the_gitlab_job(checkout):
    job = yaml.safe_load((EXAMPLES / "gitlab.yml").read_text())["ttrace"]
    (script,) = job["script"]
    variables = {**job["variables"], "TTRACE_FILE": "tools/ci/ttrace.yaml"}
    result = as_a_runner(checkout, script.replace("/tmp/ttrace/build", str(BUILD)), **variables)
    assert result.stdout.splitlines()[-1] == "2 candidates compute what the reference computes."
    for kept in [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"], *job["cache"]["paths"]]:
        assert (checkout.directory / kept).exists(), kept


SRUN = """\
#!/usr/bin/env bash
# Stands in for SLURM's launcher: `srun --ntasks=N COMMAND...` on this machine.
ntasks=${1#--ntasks=}; shift
for ((rank = 0; rank < ntasks; ++rank)); do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=$ntasks "$@" &
done
code=0
for job in $(jobs -p); do wait "$job" || code=$?; done
exit $code
"""


def test_the_slurm_job(checkout, tmp_path):
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$*" = "show hostnames localhost" ] && echo localhost\n')
    for program in tmp_path.iterdir():
        program.chmod(0o755)
    checkout("bash", "-n", EXAMPLES / "slurm.sh")
    result = checkout(
        EXAMPLES / "slurm.sh",
        SLURM_SUBMIT_DIR=str(checkout.directory),
        SLURM_JOB_ID="17",
        SLURM_JOB_NODELIST="localhost",
        PATH=f"{tmp_path}:/usr/bin:/bin",
    )
    assert result.stdout.splitlines()[-1] == "1 candidate computes what the reference computes."
    assert "reference: made" not in result.stderr  # the workflow's fits, if it ran before
    assert (checkout.directory / "ttrace-17.xml").exists()
    assert "same" in checkout(TTRACE, "history", "ttrace-history.sqlite").stdout


LAUNCH = f"{sys.executable} tools/laboratory/sweeps/launch.py"
MATRIX = f"""\
reference:
  command: .venv/bin/python tools/tinygpt/train.py
  inputs: [tools/tinygpt, tools/requirements.txt]
candidates:
  - name: tp{{tp}}-{{bug}}
    matrix: {{tp: [2], bug: [none, embedding-mask], exclude: [{{bug: none}}]}}
    command: {LAUNCH} {{tp}} tools/tinygpt/train.py --tp {{tp}} --bug {{bug}}
    axes: tp={{tp}}
    inputs: [tools/tinygpt]
annotations: annotations/megatron_gpt.yaml
environment: [OMP_NUM_THREADS]
"""


def test_a_bug_is_named_in_the_last_line_also_after_a_kill(checkout):
    (checkout.directory / "matrix.yaml").write_text(MATRIX)
    command = [TTRACE, "run", "matrix.yaml"]
    killed = subprocess.Popen(
        command, cwd=checkout.directory, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    for line in killed.stderr:
        if "tp2-embedding-mask: made now" in line:
            break
    time.sleep(1)  # into the training program
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stderr.close()
    assert list((checkout.directory / ".ttrace" / "partial" / "candidates").iterdir())
    assert not (checkout.directory / ".ttrace" / "candidates" / "tp2-embedding-mask").exists()

    resumed = checkout(*command, expect=1)
    assert resumed.stderr.count("made now") == 2  # the candidate, and its second run
    last = resumed.stdout.splitlines()[-1]
    assert last.startswith("tp2-embedding-mask: embedding.word_embeddings, output, micro-batch 0: ")
    assert last.endswith("later differences follow from it.")
    report = json.loads(
        (checkout.directory / ".ttrace" / "candidates" / "tp2-embedding-mask" / "report.json").read_text()
    )
    assert report["root_cause"]["standing"] == "confirmed"
    assert 0 < report["wrong_in_second_run"] < report["counts"]["fail"] / 10
    again = checkout(*command, expect=1)
    assert "made" not in again.stderr and again.stdout == resumed.stdout
    assert not (checkout.directory / ".ttrace" / "partial").exists()
