"""`ttrace run` on real training processes, and the examples of tools/ci, run as far as this machine goes."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import venv
import zipfile

import pytest
import yaml
from conftest import BUILD, ROOT

TTRACE = BUILD / "bin" / "ttrace"
EXAMPLES = ROOT / "tools" / "ci"


def as_a_runner(checkout, script, **environment):
    """Runs a step as the services' runners do: bash, which ends at the first failure."""
    return checkout("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script, **environment)


def stand_in_wheel(folder):
    """A wheel that pip installs, whose `ttrace` is the program of this build: what a wheel holds, tools/wheel tests."""
    path = folder / "ttrace-0.3.0-py3-none-any.whl"
    info = "ttrace-0.3.0.dist-info"
    files = {
        "ttrace_stand_in.py": f"import os, sys\n\ndef main():\n    os.execv({str(TTRACE)!r}, sys.argv)\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: ttrace\nVersion: 0.3.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nttrace = ttrace_stand_in:main\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return path


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job's own Python, which is first on its PATH, and a wheel: the variables that its steps run with."""
    folder = tmp_path_factory.mktemp("job")
    venv.create(folder / "venv", with_pip=True)
    return {
        "PATH": f"{folder / 'venv' / 'bin'}:/usr/bin:/bin",
        "WHEEL": str(stand_in_wheel(folder)),
        "PIP_NO_INDEX": "1",
    }


def test_the_steps_of_the_github_action(checkout, job, tmp_path):
    action = yaml.safe_load((EXAMPLES / "action" / "action.yml").read_text())
    scripts = {step["name"]: step["run"] for step in action["runs"]["steps"] if "run" in step}
    assert list(scripts) == ["Install", "Check"]
    path, summary, output = tmp_path / "path", tmp_path / "summary.md", tmp_path / "output"
    install = {"PYTHON": action["inputs"]["python"]["default"], "GITHUB_PATH": str(path)}
    refused = as_a_runner(checkout, scripts["Install"], **job | install | {"WHEEL": ""}, expect=1)
    assert "the input wheel of the action is empty" in refused.stderr
    as_a_runner(checkout, scripts["Install"], **job, **install)
    assert (pathlib.Path(path.read_text().strip()) / "ttrace").exists()
    # With what the expressions of `env` come to on a pull request.
    result = as_a_runner(
        checkout,
        scripts["Check"],
        PATH=f"{path.read_text().strip()}:/usr/bin:/bin",
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
    assert json.loads((checkout.directory / "ttrace.sarif").read_text())["version"] == "2.1.0"
    assert (checkout.directory / "ttrace.xml").read_text().startswith("<?xml")
    # What is kept, the steps after it find.
    for step in action["runs"]["steps"]:
        given = step.get("with", {})
        for kept in [*given.get("path", "").splitlines(), *filter(None, [given.get("sarif_file")])]:
            assert (checkout.directory / kept).exists(), kept


def test_a_bug_is_an_annotation_of_the_pull_request(checkout, job, tmp_path):
    action = yaml.safe_load((EXAMPLES / "action" / "action.yml").read_text())
    (check,) = (step["run"] for step in action["runs"]["steps"] if step["name"] == "Check")
    file = yaml.safe_load((EXAMPLES / "ttrace.yaml").read_text())
    torchrun = ".venv/bin/torchrun --standalone --nproc-per-node 2"
    command = f"{torchrun} tools/tinygpt/train.py --tp 2 --bug embedding-mask"
    file |= {"candidates": [{"name": "buggy", "command": command, "axes": "tp=2"}], "localize": False}
    (checkout.directory / "buggy.yaml").write_text(yaml.safe_dump(file))
    output = tmp_path / "output"
    result = as_a_runner(
        checkout,
        check,
        PATH=f"{TTRACE.parent}:/usr/bin:/bin",
        FILE="buggy.yaml",
        REFRESH="",
        GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"),
        GITHUB_OUTPUT=str(output),
        expect=1,
    )
    assert output.read_text() == "verdict=different\n"
    (annotation,) = (line for line in result.stdout.splitlines() if line.startswith("::error "))
    assert "embedding.word_embeddings, output, micro-batch 0: 24 of 64 rows" in annotation
    (found,) = json.loads((checkout.directory / "ttrace.sarif").read_text())["runs"][0]["results"]
    assert found["ruleId"] == "other-rows"


def test_the_github_workflow_uses_the_action():
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    (uses,) = (step for step in workflow["jobs"]["ttrace"]["steps"] if "/ttrace/" in step.get("uses", ""))
    action = yaml.safe_load((EXAMPLES / "action" / "action.yml").read_text())
    assert uses["uses"].startswith("OWNER/ttrace/tools/ci/action@")
    assert set(uses["with"]) <= set(action["inputs"])


def test_the_scripts_of_the_gitlab_job(checkout, job):
    gitlab = yaml.safe_load((EXAMPLES / "gitlab.yml").read_text())["ttrace"]
    variables = {**gitlab["variables"], "TTRACE_FILE": "tools/ci/ttrace.yaml", "TTRACE_WHEEL": job["WHEEL"], **job}
    script = "\n".join([*gitlab["before_script"], *gitlab["script"]])
    result = as_a_runner(checkout, script, **variables)
    assert result.stdout.splitlines()[-1] == "2 candidates compute what the reference computes."
    artifacts = gitlab["artifacts"]
    for kept in [*artifacts["paths"], artifacts["reports"]["junit"], *gitlab["cache"]["paths"]]:
        assert (checkout.directory / kept).exists(), kept


@pytest.mark.nightly
def test_the_command_of_the_buildkite_step(checkout, job, tmp_path):
    pipeline = yaml.safe_load((EXAMPLES / "buildkite.yml").read_text())
    (step,) = pipeline["steps"]
    agent = tmp_path / "buildkite-agent"
    agent.write_text(f'#!/bin/sh\n{{ echo "$*"; cat; }} > {tmp_path}/annotation\n')
    agent.chmod(0o755)
    variables = {**step["env"], **job, "TTRACE_FILE": "tools/ci/ttrace.yaml", "TTRACE_WHEEL": job["WHEEL"]}
    variables |= {"BUILDKITE_AGENT_NAME": "agent", "BUILDKITE_PIPELINE_SLUG": "pipeline", "HOME": str(tmp_path)}
    variables["PATH"] = f"{tmp_path}:{job['PATH']}"
    kept = tmp_path / ".cache" / "ttrace" / "agent"
    kept.mkdir(parents=True)
    (kept / "pipeline").symlink_to(checkout.directory / ".ttrace")  # of the builds before
    # The service reads `$$` as `$` when it takes the pipeline.
    as_a_runner(checkout, step["command"].replace("$$", "$"), **variables)
    annotation = (tmp_path / "annotation").read_text()
    assert annotation.startswith("annotate --context ttrace --style success\n### ttrace: same\n")
    for kept in step["artifact_paths"]:
        assert (checkout.directory / kept).exists(), kept


@pytest.mark.nightly
def test_the_shell_step_of_the_jenkins_pipeline(checkout, job, tmp_path):
    pipeline = (EXAMPLES / "Jenkinsfile").read_text()
    (script,) = re.findall(r"sh '''(.*?)'''", pipeline, re.DOTALL)
    assert "\\" not in script  # Groovy takes some of them away
    settings = dict(re.findall(r"^    ([A-Z_]+) = '(.*)'$", pipeline, re.MULTILINE))
    assert {"TTRACE_WHEEL", "TTRACE_FILE"} <= settings.keys()
    variables = {**settings, **job, "TTRACE_FILE": "tools/ci/ttrace.yaml", "TTRACE_WHEEL": job["WHEEL"]}
    variables |= {"JOB_NAME": "fork/main", "EXECUTOR_NUMBER": "0", "HOME": str(tmp_path)}
    kept = tmp_path / ".cache" / "ttrace" / "fork" / "main"
    kept.mkdir(parents=True)
    (kept / "0").symlink_to(checkout.directory / ".ttrace")  # of the builds before
    step = tmp_path / "step"  # the service writes it to a file and runs that, since it names its interpreter
    step.write_text(script)
    step.chmod(0o755)
    result = checkout(step, **variables)
    assert result.stdout.splitlines()[-1] == "2 candidates compute what the reference computes."
    (artifacts,) = re.findall(r"artifacts: '(.*?)'", pipeline)
    for name in ["ttrace.xml", *artifacts.split(", ")]:
        assert (checkout.directory / name).exists(), name


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
        PATH=f"{tmp_path}:{TTRACE.parent}:/usr/bin:/bin",
    )
    assert result.stdout.splitlines()[-1] == "1 candidate computes what the reference computes."
    assert "reference: made" not in result.stderr  # the workflow's fits, if it ran before
    assert (checkout.directory / "ttrace-17.xml").exists() and (checkout.directory / "ttrace-17.html").exists()
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
    assert "later differences follow from it. (in " in last
    report = json.loads(
        (checkout.directory / ".ttrace" / "candidates" / "tp2-embedding-mask" / "report.json").read_text()
    )
    assert report["root_cause"]["standing"] == "confirmed"
    assert 0 < report["wrong_in_second_run"] < report["counts"]["fail"] / 10
    again = checkout(*command, expect=1)
    assert "made" not in again.stderr and again.stdout == resumed.stdout
    assert not (checkout.directory / ".ttrace" / "partial").exists()
