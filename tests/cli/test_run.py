"""`ttrace run`: what it runs, what it uses again, what it refuses, and what it tells whom."""

import datetime
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

import pytest
from conftest import ANNOTATIONS, Program

from sweeps import warm
from traces import PROGRAM

TRAIN = shlex.join(warm.command(pathlib.Path(__file__).parent / "programs" / "train.py"))
RUN = f"""\
reference: {{command: {TRAIN}, inputs: [model.txt]}}
annotations: a.yaml
candidates:
  - name: tp{{tp}}
    matrix: {{tp: [1, 2, 4], exclude: [{{tp: 4}}]}}
    command: {TRAIN} --ranks {{tp}}
    inputs: [model.txt, parallel.txt]
"""
# The reference, its rerun, three perturbed runs, two candidates.
ALL = ["", "", "", "", "", "--ranks 1", "--ranks 2"]
WRONG = f"""\
  - name: wrong
    command: {TRAIN} --ranks 2 --wrong layers.0.mlp
    inputs: [model.txt]
"""


class Project(Program):
    """A directory with a ttrace.yaml."""

    def took_seconds(self, seconds):
        """Makes the reference one that took so long."""
        self.write(".ttrace/reference/seconds", f"{seconds}\n")

    def calls(self):
        """The commands that were run since the last time."""
        path = pathlib.Path(os.environ["CALLS"])
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def write(self, name, text):
        (self.directory / name).write_text(text)

    def run(self, *words, code):
        """The text on stdout."""
        return self("run", *words, code=code)[0]

    def last_line(self, *words, code):
        return self.run(*words, code=code).splitlines()[-1]

    def refusal(self, *words):
        """The last line on stderr, of a run that left nothing on stdout."""
        stdout, stderr = self("run", *words, code=2)
        assert stdout == ""
        return stderr.splitlines()[-1].removeprefix("ttrace: error: ")


@pytest.fixture(scope="module", autouse=True)
def warm_programs():
    """The training program is started a hundred times and more, and most of its time is NumPy's import."""
    with warm.server(package="numpy"):
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project in which everything was run once."""
    directory = tmp_path_factory.mktemp("finished")
    project = Project(directory)
    project.write("a.yaml", ANNOTATIONS)
    project.write("model.txt", "the model")
    project.write("parallel.txt", "the parallel code")
    project.write("ttrace.yaml", RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALLS", str(directory / "calls"))
        stdout, stderr = project("run", code=0)
        assert project.calls() == ALL
    assert "a line of the training program" in stderr and "a line of the training program" not in stdout
    assert stdout.splitlines()[-1] == "2 candidates compute what the reference computes."
    assert 0 < float((directory / ".ttrace/reference/seconds").read_text()) < 20
    project.took_seconds(1000)
    return directory


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    """A copy of it, with a reference that is too dear to be made again unasked."""
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return Project(pathlib.Path(shutil.copytree(finished, tmp_path / "project")))


@pytest.fixture
def empty(project):
    """The same, with nothing run yet."""
    shutil.rmtree(project.directory / ".ttrace")
    return project


def test_what_was_run_is_used_again(project):
    assert project.last_line(code=0) == "2 candidates compute what the reference computes."
    assert project.calls() == []
    plan = project.run("--plan", code=0)
    assert plan == "reference: there\ntolerance: there\ntp1: there\ntp2: there\n"
    assert (
        not (project.directory / ".ttrace" / "runs").exists() and not (project.directory / ".ttrace/partial").exists()
    )


def test_parameters_of_the_annotations_are_those_of_the_file_and_of_the_candidate(project):
    split = ANNOTATIONS.replace("tp_dim: 1", "tp_dim: $dim")
    project.write("a.yaml", "include: split.yaml\nparameters: {dim: 0}\n")
    project.write("split.yaml", "parameters: {dim: 1}\n" + split)
    assert project.refusal().startswith(".ttrace/tolerance: stale: annotations: was ")
    assert "tp2: embedding, output, micro-batch 0: " in project.run("--refresh", code=1)
    project.write("ttrace.yaml", RUN.replace("    inputs:", "    parameters: {dim: 1}\n    inputs:"))
    assert project.last_line(code=0) == "2 candidates compute what the reference computes."
    project.write("ttrace.yaml", RUN + "parameters: {dime: 1}\n")
    assert project.refuses("run") == "parameter dime=1: no value is $dime; expected one of dim"


def test_a_plan_runs_nothing(empty):
    plan = empty.run("--plan", "--only", "tp2", code=0)
    assert plan.splitlines() == [
        f"reference: missing: {TRAIN}",
        "tolerance: missing: 4 runs of the reference, in its own launch where it can be",
        f"tp2: missing: {TRAIN} --ranks 2",
    ]
    assert empty.calls() == [] and not (empty.directory / ".ttrace").exists()


def test_a_wrong_candidate_is_told_to_people_and_to_programs(project):
    project.write("ttrace.yaml", RUN + WRONG)
    outputs = ["--json", "r.json", "--junit", "r.xml", "--markdown", "r.md", "--history", "h.sqlite"]
    lines = project.run(*outputs, code=1).splitlines()
    assert project.calls() == ["--ranks 2 --wrong layers.0.mlp"]
    assert [line.split()[:2] for line in lines[1:4]] == [["tp1", "same"], ["tp2", "same"], ["wrong", "different"]]
    assert lines[-1].startswith("wrong: layers.0.mlp, output, micro-batch 0: ")

    report = json.loads((project.directory / "r.json").read_text())
    assert (report["schema"], report["verdict"], report["sentence"]) == ("ttrace-run/4", "different", lines[-1])
    assert [candidate["verdict"] for candidate in report["candidates"]] == ["same", "same", "different"]
    assert report["candidates"][2]["report"]["root_cause"]["name"] == "layers.0.mlp"
    kept = project.directory / ".ttrace" / "candidates" / "wrong" / "report.json"
    assert json.loads(kept.read_text()) == report["candidates"][2]["report"]

    suites = {suite.get("name"): suite for suite in xml.parse(project.directory / "r.xml").getroot()}
    assert [suites[name].get("failures") for name in ("tp1", "tp2", "wrong")] == ["0", "0", "1"]
    (failure,) = suites["wrong"].findall("testcase/failure/..")
    assert (failure.get("classname"), failure.get("name")) == ("wrong.output", "layers.0.mlp")

    markdown = (project.directory / "r.md").read_text()
    assert markdown.startswith("### ttrace: different\n\nwrong: layers.0.mlp, output, ")
    assert (
        "| wrong | **different** | 4 | 1 | 0 | 0 | 0 | 0 | layers.0.mlp output, iteration 0, micro-batch 0 |"
        in markdown
    )
    assert [line.split()[3:4] for line in project("history", "h.sqlite", code=0)[0].splitlines()[1:4]] == [
        ["same"],
        ["same"],
        ["different"],
    ]


def test_a_command_that_fails_is_reported_and_the_others_still_run(project):
    project.write(
        "ttrace.yaml",
        RUN.replace(
            "candidates:",
            f"""candidates:
  - {{name: broken, command: {TRAIN} --fail 3, inputs: [model.txt]}}""",
        ),
    )
    stdout = project.run("--junit", "r.xml", code=2)
    assert stdout.splitlines()[-1].startswith("broken: could-not-look: ") and "exit code 3" in stdout.splitlines()[-1]
    assert [line.split()[1] for line in stdout.splitlines()[1:4]] == ["could-not-look", "same", "same"]
    (error,) = xml.parse(project.directory / "r.xml").getroot().findall("testsuite/testcase/error")
    assert "exit code 3" in error.get("message")
    project.calls()
    assert project.last_line("--only", "tp*", code=0) == "2 candidates compute what the reference computes."
    assert project.calls() == []


def test_a_candidate_whose_axes_nobody_says_is_told_the_line_that_may(project):
    candidate = f"candidates:\n  - {{name: open, command: {TRAIN} --ranks 2 --no-axes, inputs: [model.txt]}}\n"
    project.write("ttrace.yaml", RUN[: RUN.index("candidates:")] + candidate)
    stdout, stderr = project("run", code=2)
    assert "say it when the trace is checked" not in stderr  # it is not for a user to check it
    assert "expected `axes` beside the command on line 4 of ttrace.yaml, as in " in stdout


def test_a_command_that_hangs_is_stopped_and_the_others_still_run(project):
    hanging = "candidates:\n  - {name: hangs, command: sleep 300, inputs: [model.txt], timeout: 1s}"
    project.write("ttrace.yaml", RUN.replace("candidates:", hanging) + "timeout: 1h\n")
    start = time.monotonic()
    stdout = project.run(code=2)
    assert time.monotonic() - start < 60
    assert [line.split()[:2] for line in stdout.splitlines()[1:4]] == [
        ["hangs", "could-not-look"],
        ["tp1", "same"],
        ["tp2", "same"],
    ]
    assert "the trace of hangs could not be collected, did not end within 1 s" in stdout
    for wrong in ("0s", "1", "1d", "soon"):
        project.write("ttrace.yaml", RUN + f"timeout: {wrong}\n")
        assert project.refusal().endswith(f": timeout is '{wrong}'; expected a time, as in 90s, 30m or 2h")


def test_git_bisect_finds_the_commit_and_skips_what_cannot_be_looked_at(project):
    candidate = f"candidates: [{{name: tp2, command: '{TRAIN} --ranks 2 $(cat parallel.txt)', inputs: [parallel.txt]}}]"
    project.write("ttrace.yaml", RUN[: RUN.index("candidates:")] + candidate + "\nlocalize: false\n")

    def git(*words):
        command = ["git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org", *words]
        return subprocess.run(command, cwd=project.directory, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    commits = []
    for number, options in enumerate(("", "--fail 3", "", "--wrong layers.0.mlp", "--wrong layers.0.mlp")):
        project.write("parallel.txt", f"{options}\n{' ' * number}")  # no two of them are equal
        git("add", "parallel.txt")
        git("commit", "-q", "-m", f"commit {number}")
        commits.append(git("rev-parse", "HEAD").strip())
    git("bisect", "start", commits[-1], commits[0])
    assert f"{commits[3]} is the first bad commit" in git("bisect", "run", PROGRAM, "run", "--bisect")
    git("checkout", "-q", commits[1])
    assert "exit code 3" in project("run", "--bisect", code=125)[0]
    # What no other commit mends ends the bisection.
    project.write("model.txt", "another model")
    project.took_seconds(1)  # nor is what stands for right made again on the way
    stderr = project("run", "--bisect", code=128)[1]
    assert "stale: input model.txt" in stderr and "give the reference `inputs`" in stderr
    project.write("ttrace.yaml", "reference: [")
    assert "ttrace.yaml:1: " in project("run", "--bisect", code=128)[1]


def test_a_stale_reference_is_refused_with_the_reason_and_made_again_when_asked(project):
    project.write("model.txt", "another model")
    message = project.refusal("--junit", "r.xml")
    assert message.startswith(".ttrace/reference: stale: input model.txt: was ") and "--refresh" in message
    assert message in xml.parse(project.directory / "r.xml").getroot().find("testsuite/testcase/error").get("message")
    assert project.calls() == []
    assert "tp2: stale: input model.txt: was " in project.run("--plan", code=2)
    project.run("--refresh", code=0)
    assert project.calls() == ALL
    assert project.run(code=0) and project.calls() == []


def test_a_cheap_reference_is_made_again_and_the_reports_say_so(project):
    project.took_seconds(1)
    project.write("model.txt", "another model")
    assert "reference: stale: input model.txt: was " in project.run("--plan", code=0)
    lines = project.run("--json", "r.json", code=0).splitlines()
    assert project.calls() == ALL
    notes = json.loads((project.directory / "r.json").read_text())["notes"]
    assert [note.split(": ")[:2] for note in notes] == [["the reference was made again", "input model.txt"]]
    assert f"note: {notes[0]}" in lines
    assert project.run(code=0) and project.calls() == []


def test_a_dear_reference_is_refused_with_the_time_that_it_takes(project):
    project.write("model.txt", "another model")
    assert project.refusal().endswith("; --refresh makes it again, in about 83 min")
    project.took_seconds(25)
    assert project.refusal().endswith("; --refresh makes it again, in about 2 min")
    (project.directory / ".ttrace/reference/seconds").unlink()
    assert project.refusal().endswith("; --refresh makes it again")


def test_a_reference_that_fails_is_shown_with_the_line_of_its_command(empty):
    empty.write("ttrace.yaml", RUN.replace(f"command: {TRAIN}, ", f"command: {TRAIN} --fail 3, ", 1))
    expected = "expected a command that ends with 0, and a whole trace of it (it is on line 1 of ttrace.yaml: where it"
    assert f"exit code 3; {expected} is parallel, take from it " in empty.refusal()


def test_a_file_that_inputs_forget_makes_the_candidates_again_and_is_noted_of_the_reference(empty, monkeypatch):
    monkeypatch.setenv("PROGRAM_FILES", '["forgotten.py", "model.txt", "../out.py", "/etc/hostname"]')
    for git in ("true", "git init -q"):
        subprocess.run(git, shell=True, cwd=empty.directory, check=True)
        empty.write("forgotten.py", "one")
        empty.run("--refresh", code=0)
        empty.calls()
        assert "note:" not in empty.run(code=0) and empty.calls() == []
        empty.write("forgotten.py", "another")
        plan = empty.run("--plan", code=0)
        assert plan.startswith("reference: there\ntolerance: there\ntp1: stale: loaded forgotten.py")
        stdout, stderr = empty("run", code=0)
        assert empty.calls() == ["--ranks 1", "--ranks 2"]
        assert "ttrace: tp1: made again: loaded forgotten.py: was " in stderr
        assert "note: the reference had loaded forgotten.py, which has changed since and is not among its " in stdout


def test_only_what_a_change_concerns_is_run_again(project):
    project.write("parallel.txt", "other parallel code")
    _, stderr = project("run", code=0)
    assert "ttrace: tp1: made again: input parallel.txt: was " in stderr
    assert project.calls() == ["--ranks 1", "--ranks 2"]
    project.write("ttrace.yaml", RUN + "margin: 4\n")
    assert project.refusal().startswith(".ttrace/tolerance: stale: margin: was 3, is 4; ")
    project.run("--refresh", code=0)
    assert project.calls() == ALL[1:5]
    assert "margin: 4\n" in (project.directory / ".ttrace" / "tolerance" / "tolerance.yaml").read_text()


def test_tolerances_of_another_version_of_their_file_are_stale(project):
    path = project.directory / ".ttrace/tolerance/key.json"
    key = json.loads(path.read_text())
    assert key.pop("tolerance file")
    path.write_text(json.dumps(key))
    assert project.refusal().startswith(".ttrace/tolerance: stale: tolerance file: was none, is 4; ")


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda text: text.replace("inputs: [model.txt]}", "inputs: [model.txt], axes: tp=1}"), "axes: was , is tp=1"),
        (lambda text: text + "iterations: 0-1\n", "iterations: was 0, is 0-1"),
        (lambda text: text + "environment: [CALLS]\n", "environment CALLS: was none, is /"),
        (lambda text: text.replace("train.py,", "train.py --ranks 1,", 1), "command: was "),
        (lambda text: text.replace("annotations: a.yaml", "annotations: b.yaml"), "annotations: was "),
        (lambda text: text + "seeds: 4\n", "seeds: was 3, is 4"),
        (lambda text: text + "estimator: modules\n", "estimator: was input, is modules"),
    ],
)
def test_whatever_decides_what_the_reference_is_makes_it_stale(project, change, reason):
    project.write("b.yaml", ANNOTATIONS + "# changed\n")
    project.write("ttrace.yaml", change(RUN))
    assert f": stale: {reason}" in project.refusal()
    assert project.calls() == []


def test_an_upgrade_of_torch_is_noticed_when_a_run_is_collected(project, monkeypatch):
    monkeypatch.setenv("TORCH_VERSION", "2.14.0")
    project.run(code=0)
    assert project.calls() == []  # nothing was collected
    project.write("parallel.txt", "other parallel code")
    message = (
        'could-not-look: .ttrace/reference: stale: it ran on torch "2.13.0", tp1 on "2.14.0"; expected the same (rm '
    )
    assert project.last_line("--only", "tp1", code=2).startswith(f"tp1: {message}")
    assert project.calls() == ["--ranks 1"]


def test_a_reference_on_another_torch_makes_candidates_stale_that_ran_on_the_former(project, monkeypatch):
    monkeypatch.setenv("TORCH_VERSION", "2.14.0")
    shutil.rmtree(project.directory / ".ttrace" / "reference")
    shutil.rmtree(project.directory / ".ttrace" / "candidates" / "tp1")
    project.run("--only", "tp1", code=0)
    assert project.calls() == ALL[:6]
    reason = 'torch: was "2.13.0", the reference\'s is "2.14.0"'
    assert f"\ntp2: stale: {reason}\n" in project.run("--plan", code=0)
    _, stderr = project("run", code=0)
    assert f"ttrace: tp2: made again: {reason}\n" in stderr
    assert project.calls() == ["--ranks 2"]


def test_a_tolerance_is_not_estimated_from_runs_on_another_torch(project, monkeypatch):
    monkeypatch.setenv("TORCH_VERSION", "2.14.0")
    shutil.rmtree(project.directory / ".ttrace" / "tolerance")
    for _ in range(2):
        assert project.refusal().startswith(
            '.ttrace/reference: stale: it ran on torch "2.13.0", runs/rerun on "2.14.0"; expected the same (rm -r '
        )
    shutil.rmtree(project.directory / ".ttrace" / "reference")
    project.run(code=0)


def test_a_reference_that_was_taken_away_is_made_again_with_its_tolerance(project):
    shutil.rmtree(project.directory / ".ttrace" / "reference")
    project.run(code=0)
    assert project.calls() == ALL[:5]


def day(days):
    """That day counted from today."""
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)).date().isoformat()


SOON = day(30)
WAIVER = f"waivers:\n  - {{pattern: mlp, kinds: [output], reason: issue 12, expires: {SOON}}}\n"


def test_a_waived_finding_is_listed_and_does_not_fail_until_the_day(project):
    project.write("ttrace.yaml", RUN + WRONG + WAIVER)
    stdout = project.run("--json", "r.json", "--junit", "r.xml", code=0)
    assert (
        f"wrong: waived: layers.0.mlp output, iteration 0, micro-batch 0: exceeds-tolerance until {SOON}: issue 12"
        in stdout
    )
    candidate = json.loads((project.directory / "r.json").read_text())["candidates"][2]
    assert (candidate["verdict"], candidate["report"]["waived"], candidate["report"]["counts"]["compared"]) == (
        "same",
        1,
        3,
    )
    assert candidate["waived"][0]["waiver"]["reason"] == "issue 12"
    (skipped,) = xml.parse(project.directory / "r.xml").getroot().findall("testsuite/testcase/skipped")
    assert skipped.get("message").startswith(f"waived until {SOON}: issue 12; ")
    assert "waived nothing" not in stdout

    project.write("ttrace.yaml", RUN + WRONG + WAIVER.replace(SOON, "2020-06-30"))
    stdout = project.run(code=1)
    assert "the waiver of 'mlp' expired on 2020-06-30 and waives nothing: issue 12" in stdout


def test_a_waiver_that_waives_nothing_is_reported_where_all_was_checked(project):
    project.write("ttrace.yaml", RUN + WAIVER)
    assert "ttrace.yaml:9: the waiver of 'mlp' waived nothing; remove it (issue 12)" in project.run(code=0)
    assert "waived nothing" not in project.run("--only", "tp1", code=0)


def waivers(pattern, expires=SOON):
    return f"waivers:\n  - {{pattern: '{pattern}', reason: everything, expires: {expires}}}\n"


ALL_WRONG = RUN.replace("--ranks", "--all-wrong --ranks")


@pytest.mark.parametrize("pattern", ["**", "*", "[a-z]*"])
def test_a_waiver_of_everything_is_refused_before_anything_runs(empty, pattern):
    empty.write("ttrace.yaml", ALL_WRONG + waivers(pattern))
    assert empty.refusal() == (
        f"ttrace.yaml:9: the waiver of '{pattern}' matches every tensor; expected a pattern with a name in it, or "
        "accept_overrides: true"
    )
    assert empty.calls() == []


def test_a_waiver_for_ever_is_refused(project):
    for expires, ends in {day(367): 2, "9999-12-31": 2, day(366): 0}.items():
        project.write("ttrace.yaml", RUN + waivers("mlp", expires))
        stderr = project("run", code=ends)[1]
        assert ends == 0 or f"the waiver of 'mlp' expires on {expires}; expected a day in the next 366, or " in stderr


def test_waivers_that_excuse_most_of_a_kind_prove_nothing(project):
    wrong = RUN + WRONG.replace("--wrong layers.0.mlp", "--all-wrong")
    project.write("ttrace.yaml", wrong + waivers("[!x]*.mlp*") + waivers("embedding").replace("waivers:\n", ""))
    stdout = project.run("--only", "wrong", code=1)  # the loss and the gradient are not waived
    assert "wrong: waived: layers.0.mlp output" in stdout
    off = RUN + WRONG.replace("--wrong layers.0.mlp", "--wrong layers.0.mlp.weight")
    project.write("ttrace.yaml", off + waivers("layers.0.mlp.weight"))
    stdout = project.run("--only", "wrong", code=2)
    assert stdout.splitlines()[-1] == (
        "wrong: could-not-look: too little is proved, of main_grad 0 of 1 (1 waiver); expected half of each kind: mend "
        "what they excuse, or accept it: accept_overrides: true"
    )
    project.write("ttrace.yaml", off + waivers("layers.0.mlp.weight") + "accept_overrides: true\n")
    assert "wrong: waived: layers.0.mlp.weight" in project.run("--only", "wrong", code=0)


def test_waivers_make_no_verdict_out_of_nothing(project):
    project.write("ttrace.yaml", ALL_WRONG + waivers("**", "9999-12-31") + "accept_overrides: true\n")
    stdout = project.run("--only", "tp1", "--json", "r.json", code=2)
    assert stdout.splitlines()[-1].startswith("tp1: could-not-look: no")
    report = json.loads((project.directory / "r.json").read_text())["candidates"][0]["report"]
    assert (report["waived"], report["counts"]["compared"], report["counts"]["fail"]) == (4, 0, 0)


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_goes_on_where_it_was(empty, tmp_path, kill):
    gate = tmp_path / "gate"
    gate.touch()
    empty.write("ttrace.yaml", RUN.replace("--ranks", f"--wait-while {gate} --ranks"))
    words = [PROGRAM, "run"]
    process = subprocess.Popen(
        words, cwd=empty.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    calls = pathlib.Path(os.environ["CALLS"])
    deadline = time.monotonic() + 50
    while not (calls.exists() and "--ranks 1\n" in calls.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    if kill == signal.SIGKILL:
        process.kill()
        process.wait()
    else:
        process.terminate()
        _, stderr = process.communicate(timeout=30)
        assert process.returncode == 2 and "interrupted by signal 15" in stderr.splitlines()[-1]
    gate.unlink()  # what outlives the killed run ends now, while the next one works
    empty.calls()
    assert empty.last_line(code=0) == "2 candidates compute what the reference computes."
    assert [call.split()[-1] for call in empty.calls()] == ["1", "2"]


def test_two_runs_do_not_work_in_one_directory(project, tmp_path):
    import fcntl

    with open(project.directory / ".ttrace" / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert project.refusal().startswith(".ttrace: another ttrace works there; ")


WITHOUT_INPUTS = RUN.replace(", inputs: [model.txt]", "").replace("    inputs: [model.txt, parallel.txt]\n", "")


def test_all_that_is_in_the_folder_is_the_code_where_neither_git_nor_a_list_says_it(project):
    project.write("ttrace.yaml", WITHOUT_INPUTS)
    (project.directory / "venv").mkdir()
    project.write("venv/pyvenv.cfg", "home = /usr/bin")
    _, said = project("run", "--refresh", code=0)
    assert "in no git repository with a commit, so that all files of this folder count" in said
    project.took_seconds(1000)
    project.write("venv/installed.py", "no code of the project")
    project.run(code=0)
    project.write("more.txt", "another file")
    assert ".ttrace/reference: stale: code more.txt" in project.refusal()


def test_the_code_is_what_git_knows_where_nobody_lists_it(project):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=project.directory,
            check=True,
            capture_output=True,
        )

    text = WITHOUT_INPUTS
    project.write("ttrace.yaml", text)
    git("init", "-q")
    git("add", "model.txt", "a.yaml", "parallel.txt")
    project.write("more.yaml", "a configuration")
    git("commit", "-qm", "one")
    project.run("--refresh", "--json", "r.json", code=0)
    project.took_seconds(1000)
    # Neither the waivers in ttrace.yaml, nor a report, nor committing what was there already change what is computed.
    project.write("ttrace.yaml", text + WAIVER)
    git("add", "more.yaml", "ttrace.yaml")
    git("commit", "-qm", "two")
    project.calls()
    project.run("--json", "r.json", code=0)
    assert project.calls() == []
    project.write("model.txt", "another model")
    assert project.refusal().startswith(".ttrace/reference: stale: code model.txt: was ")
    git("checkout", "model.txt")
    project.write("notes.md", "neither code nor tracked")
    project.run("--json", "another.json", code=0)
    project.run(code=0)  # the reports of the runs before are no code
    assert project.calls() == []
    project.write("annotations.yaml", "# Drafted by `ttrace annotate` (1 placement: 1 certain, 0 guessed).\n")
    project.write("tolerances.yml", "# What each tensor may differ by in `ttrace check`: allowed = margin\n")
    project.run(code=0)  # nor is what its other commands have written
    assert project.calls() == []
    project.write("settings.json", "{}")
    assert project.refusal("--json", "r.json").startswith(".ttrace/reference: stale: code settings.json: was none, is ")
    (project.directory / "settings.json").unlink()
    project.write("new.py", "")
    assert project.refusal("--json", "r.json").startswith(".ttrace/reference: stale: code new.py: was none, is ")


def test_a_file_that_the_command_names_is_code_even_where_git_does_not_know_it(project):
    commit = "git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one"
    subprocess.run(commit, shell=True, cwd=project.directory, check=True)
    text = RUN.replace(", inputs: [model.txt]", "").replace("    inputs: [model.txt, parallel.txt]\n", "")
    candidate = f"command: {TRAIN} --ranks {{tp}}"
    project.write("ttrace.yaml", text.replace(candidate, f"{candidate}; true --config=settings.txt"))
    project.write("settings.txt", "one")
    project.run("--refresh", code=0)
    project.calls()
    project.write("settings.txt", "another")
    _, stderr = project("run", code=0)
    assert "ttrace: tp1: made again: file settings.txt: was " in stderr
    assert project.calls() == ["--ranks 1", "--ranks 2"]


REFUSED = {
    "reference: [": "1: ",
    RUN + "referense: x\n": "8: the file has an unknown key 'referense'; expected reference, candidates, ",
    RUN + "margin: 3\nmargin: 4\n": "9: the file has 'margin' twice; expected it once",
    RUN + "iterations: 5-\n": " iterations: '5-'; expected numbers and ranges",
    RUN + "seeds: 2\n": "8: 'seeds'; expected a number from 3 to 1000",
    RUN + "then: -1\n": "8: 'then'; expected a number from 0 to 1000",
    RUN + "margin: 0.5\n": "8: 'margin'; expected a number from 1 to 1000",
    RUN.replace("tp: 4}", "tpp: 4}"): "5: exclude: 'tpp' is no variable of the matrix [tp]; expected one",
    RUN.replace("tp: 4}", "tp: 8}"): "5: exclude: no combination has {tp: 8}; expected values of the matrix",
    RUN.replace("--ranks {tp}", "--ranks {pp}"): "4: '{pp}' is none of [tp]; expected one,",
    RUN.replace(
        "    matrix:", "    where: tp < 4\n    matrix:"
    ): "5: a candidate has an unknown key 'where'; expected command, axes, inputs, ",
    RUN.replace("name: tp{tp}", "name: tp"): "4: two candidates are called 'tp'; expected a name",
    RUN.replace("name: tp{tp}", "name: ../tp{tp}"): "4: the name '../tp1'; expected letters,",
    RUN.replace("--ranks {tp}", "--ranks {tp"): "4: ",
    RUN.replace("    matrix:", "    axes: tp={tp},tp\n    matrix:"): "4: axes of tp1: ",
    RUN + "waivers: [{pattern: a, reason: b}]\n": "8: a waiver has no 'expires'; expected one",
    RUN + "waivers: [{pattern: a, expires: 2030-01-01}]\n": "8: a waiver has no 'reason'; expected one",
    RUN + "waivers: [{pattern: a, reason: b, expires: 2030-02-30}]\n": "8: expires '2030-02-30'; expected a day,",
    RUN + "waivers: [{pattern: a, reason: b, expires: 2030-01-01, kinds: [outputs]}]\n": "8: 'outputs' is no kind",
    "candidates: []\nreference: {command: a}\n": "1: 'candidates' is empty; expected one or more",
    "candidates: [{name: a, command: b}]\n": "1: the file has no 'reference'; expected one",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_file_that_makes_no_sense_is_refused_before_anything_runs(empty, text):
    empty.write("ttrace.yaml", text)
    message = empty.refuses("run")
    assert message.startswith("ttrace.yaml:" + REFUSED[text]), message
    assert empty.calls() == []


def test_what_is_not_there_is_named(project):
    assert project.refuses("run", "other.yaml") == (
        "other.yaml: not there; expected a file that says what to run, as `ttrace run --help` shows"
    )
    assert project.refuses("run", "--only", "tp8") == "--only 'tp8': fits no candidate; expected one of tp1, tp2"
    (project.directory / "model.txt").unlink()
    assert project.refusal().startswith("'model.txt': no such file; expected ")


def test_a_candidate_may_have_annotations_and_a_tolerance_of_its_own(project):
    own = ANNOTATIONS.replace("tp_dim: 1", "tp_dim: $dim")
    project.write("own.yaml", "parameters: {dim: 0}\n" + own)
    shutil.copy(
        project.directory / ".ttrace" / "tolerance" / "tolerance.yaml", project.directory / "own-tolerance.yaml"
    )
    project.write(
        "ttrace.yaml", RUN + "    annotations: own.yaml\n    parameters: {dim: 1}\n    tolerance: own-tolerance.yaml\n"
    )
    assert project.run("--plan", code=0) == "reference: there\ntp1: there\ntp2: there\n"
    assert project.last_line("--json", "report.json", code=0) == "2 candidates compute what the reference computes."
    assert project.calls() == []
    # Without its parameter, the candidate's own annotations place a tensor wrongly.
    project.write("ttrace.yaml", RUN + "    annotations: own.yaml\n")
    assert project.run("--only", "tp2", code=1)
    project.write("ttrace.yaml", RUN + "    tolerance: nowhere.yaml\n")
    assert project.refusal().startswith("nowhere.yaml: ")


RECORD = """\
import sys, numpy, ttrace
dim = 1 if sys.argv[1] == "reference" else 0
whole = numpy.arange(1, 33, dtype="float32").reshape(4, 8)
for rank in range(2):
    with ttrace.Recorder(rank=rank, world_size=2, axes="tp=2") as run:
        part = numpy.split(whole, 2, axis=dim)[rank]
        if run.seed is not None:
            part = part * numpy.split(run.factors("mlp", whole.shape), 2, axis=dim)[rank]
        run.record("mlp", numpy.ascontiguousarray(part))
        run.record("loss", numpy.float32(1), kind="scalar")
"""


@pytest.mark.parametrize("own", ["annotations: rows.yaml", "parameters: {dim: 0}"])
def test_a_candidates_own_annotations_are_not_those_of_a_parallel_reference(tmp_path, monkeypatch, own):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(PROGRAM).parents[1] / "lib/python"))
    project = Project(tmp_path)
    project.write("record.py", RECORD)
    project.write("columns.yaml", "parameters: {dim: 1}\nmlp:\n  output: {tp_dim: $dim}\n")
    project.write("rows.yaml", "mlp:\n  output: {tp_dim: 0}\n")
    job = f"command: {sys.executable} record.py {{}}, inputs: [record.py], axes: tp=2"
    project.write(
        "ttrace.yaml",
        f"reference: {{{job.format('reference')}}}\n"
        f"candidates: [{{name: rows, {job.format('candidate')}, {own}}}]\n"
        "annotations: columns.yaml\nlocalize: false\n",
    )
    assert project.last_line(code=0) == "1 candidate computes what the reference computes."


FORGE = """\
import json, os, sys
import numpy, ttrace

role = sys.argv[1]
open(f"{role}.calls", "a").write("called\\n")
if role == "candidate":  # what the trace then says of its command
    config = json.loads(os.environ["TTRACE_CONFIG"])
    config["provenance"]["command"] = ["touch", "PWNED"]
    os.environ["TTRACE_CONFIG"] = json.dumps(config)
with ttrace.Recorder() as run:
    values = numpy.arange(1, 13, dtype="float32").reshape(3, 4)
    run.record("mlp", values, kind="input")
    run.record("mlp", values * run.factors("mlp", values.shape) * (3 if role == "candidate" else 1))
"""


def test_a_second_run_is_the_command_of_the_file_whatever_the_kept_trace_names(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(PROGRAM).parents[1] / "lib/python"))
    project = Project(tmp_path)
    project.write("forge.py", FORGE)
    job = f"command: {sys.executable} forge.py {{}}, inputs: [forge.py], axes: tp=1"
    project.write(
        "ttrace.yaml",
        f"reference: {{{job.format('reference')}}}\ncandidates: [{{name: wrong, {job.format('candidate')}}}]\n",
    )
    project("run", code=1)
    assert not (tmp_path / "PWNED").exists()
    assert (tmp_path / "candidate.calls").read_text() == "called\n" * 2


# For the shell: goes on when two of these commands have started, or fails after ten seconds.
MEET = (
    "echo $MASTER_PORT > met-{tp}; "
    "for i in $(seq 500); do [ $(ls met-* | wc -l) = 2 ] && break; sleep 0.02; done; [ $i -lt 500 ] || exit 9; "
)
MEETING = RUN.replace(f"command: {TRAIN} --ranks {{tp}}", f"command: '{MEET} {TRAIN} --ranks {{tp}}'")


def test_side_by_side_the_same_is_collected_and_each_command_has_a_port_of_its_own(empty):
    empty.write("ttrace.yaml", MEETING)
    empty.run("-j", "2", "--json", "jobs.json", code=0)
    assert sorted(empty.calls()) == sorted(ALL)
    ports = [(empty.directory / f"met-{tp}").read_text() for tp in (1, 2)]
    assert len(set(ports)) == 2 and all(port.strip().isdigit() for port in ports)
    log = empty.directory / ".ttrace/candidates/tp2/trace.log"
    assert log.read_text().startswith("a line of the training program\n")
    empty.run("--json", "again.json", code=0)
    assert empty.calls() == []
    assert (empty.directory / "jobs.json").read_bytes() == (empty.directory / "again.json").read_bytes()


def test_one_at_a_time_commands_do_not_meet(empty):
    empty.write("ttrace.yaml", MEETING)
    assert "tp1: could-not-look: " in empty.run("--only", "tp*", code=2)


def test_side_by_side_what_fails_or_hangs_does_not_stop_the_others(project):
    broken = f"""candidates:
  - {{name: broken, command: {TRAIN} --fail 3, inputs: [model.txt]}}
  - {{name: hangs, command: sleep 300, inputs: [model.txt], timeout: 1s}}"""
    project.write("ttrace.yaml", RUN.replace("candidates:", broken))
    project.write("parallel.txt", "changed")
    stdout, stderr = project("run", "-j", "4", code=2)
    assert [line.split()[:2] for line in stdout.splitlines()[1:5]] == [
        ["broken", "could-not-look"],
        ["hangs", "could-not-look"],
        ["tp1", "same"],
        ["tp2", "same"],
    ]
    assert "the trace of broken could not be collected, exit code 3" in stdout
    assert "the trace of hangs could not be collected, did not end within 1 s" in stdout
    assert "a line of the training program" in stderr  # of what failed
    assert sorted(project.calls()) == ["--fail 3", "--ranks 1", "--ranks 2"]


# As `cd src && torchrun ...`: a shell that waits for what it has started.
def left_running(file):
    return f"sh -c 'echo $$ > {file}; exec sleep 1000' && true"


def ends(pid):
    for _ in range(500):
        state = pathlib.Path(f"/proc/{pid}/stat")
        if not state.exists() or ") Z " in state.read_text():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_signal_ends_what_a_shell_has_started(project, tmp_path, jobs):
    pid = tmp_path / "pid"
    project.write("ttrace.yaml", RUN.replace(f"{TRAIN} --ranks {{tp}}", left_running(pid)))
    process = subprocess.Popen(
        [PROGRAM, "run", "-j", jobs],
        cwd=project.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    started = ""  # of the one of two that came first: the other may be ended while it writes
    while not started:
        time.sleep(0.01)
        started = pid.read_text() if pid.exists() else ""
    process.terminate()
    assert process.wait(timeout=30) == 2
    assert ends(int(started))


def test_a_time_limit_ends_what_a_shell_has_started(project, tmp_path):
    pid = tmp_path / "pid"
    hangs = f"""candidates:
  - {{name: hangs, command: "{left_running(pid)}", inputs: [model.txt], timeout: 1s}}"""
    project.write("ttrace.yaml", RUN.replace("candidates:", hangs))
    assert "did not end within 1 s" in project.run("--only", "hangs", code=2)
    assert ends(int(pid.read_text()))


def test_side_by_side_what_had_ended_before_a_signal_is_kept(project, tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    project.write("parallel.txt", "changed")
    waiting = RUN.replace(
        f"{TRAIN} --ranks {{tp}}", f"{TRAIN} $([ {{tp}} = 2 ] && echo --wait-while {gate}) --ranks {{tp}}"
    )
    project.write("ttrace.yaml", waiting)
    process = subprocess.Popen(
        [PROGRAM, "run", "-j", "2"], cwd=project.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    seen = ""
    while "collected" not in seen:  # tp1; tp2 waits
        line = process.stderr.readline()
        assert line, seen
        seen += line
    process.terminate()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2 and "interrupted by signal 15" in stderr.splitlines()[-1]
    gate.unlink()
    project.calls()
    assert project.last_line(code=0) == "2 candidates compute what the reference computes."
    assert [call.split()[-1] for call in project.calls()] == ["2"]
