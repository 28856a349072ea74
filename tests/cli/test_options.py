"""Misuse is refused with one line that says where the help is, before anything is read or written."""

import subprocess

import pytest
from conftest import CHECK

from traces import PROGRAM

ESTIMATE = ("estimate-tolerance", "-o", "t.yaml")


def see(command):
    return f"; expected what `{command} --help` says"


NO_PAIR = (
    "check: expected a reference and a candidate: `ttrace check REFERENCE CANDIDATE`, or --reference and --candidate"
)
MISUSE = {
    "no command": ([], "ttrace: no command" + see("ttrace")),
    "an unknown command": (["frobnicate", "a"], "ttrace: there is no command 'frobnicate'" + see("ttrace")),
    "a misspelt command": (
        ["chek", "--reference", "r"],
        "ttrace: there is no command 'chek' (did you mean 'check'?)" + see("ttrace"),
    ),
    "a misspelt command to be helped with": (
        ["help", "chek"],
        "ttrace: there is no command 'chek' (did you mean 'check'?)" + see("ttrace"),
    ),
    "an unknown option and no command": (["--frobnicate"], "ttrace: '--frobnicate' was not expected" + see("ttrace")),
    "a missing option": (["check", "--reference", "r"], NO_PAIR),
    "an option without its value": (
        ["check", "--reference"],
        "ttrace check: --reference: 1 required TRACE missing" + see("ttrace check"),
    ),
    # Not: --candidate is required.
    "a misspelt option": (
        ["check", "--reference", "r", "--candidat", "c"],
        "ttrace check: '--candidat' was not expected (did you mean '--candidate'?)" + see("ttrace check"),
    ),
    "a misspelt option with its value": (
        [*CHECK, "--strikt=yes"],
        "ttrace check: '--strikt=yes' was not expected (did you mean '--strict'?)" + see("ttrace check"),
    ),
    "an option of another command": (
        [*CHECK, "--seeds", "2"],
        "ttrace check: '--seeds' was not expected" + see("ttrace check"),
    ),
    "one directory too many": ([*CHECK, "another"], NO_PAIR),
    "no number of threads": (
        [*CHECK, "--threads", "many"],
        "ttrace check: --threads: Value many not in range 1 to 4096" + see("ttrace check"),
    ),
    "a number of threads out of range": (
        [*CHECK, "--threads", "0"],
        "ttrace check: --threads: Value 0 not in range 1 to 4096" + see("ttrace check"),
    ),
    "two reports on stdout": (
        [*CHECK, "--json", "-", "--junit", "-"],
        "--json, --junit: both go to stdout; expected one",
    ),
    "no trace to annotate": (["annotate"], "ttrace annotate: TRACE is required" + see("ttrace annotate")),
    "no annotations to lint": (["lint", "candidate"], "ttrace lint: --annotations is required" + see("ttrace lint")),
    "no place for the trace": (
        ["collect", "--", "true"],
        "ttrace collect: --output is required" + see("ttrace collect"),
    ),
    "no command to collect from": (
        ["collect", "-o", "trace"],
        "ttrace collect: COMMAND is required" + see("ttrace collect"),
    ),
    "a place to perturb and no seed": (
        ["collect", "-o", "trace", "--perturb-at", "modules", "--", "true"],
        "ttrace collect: --perturb-at requires --perturb" + see("ttrace collect"),
    ),
    "no place for the tolerances": (
        ["estimate-tolerance", "--reference", "r"],
        "ttrace estimate-tolerance: --output is required" + see("ttrace estimate-tolerance"),
    ),
    "no reference": (
        [*ESTIMATE, "--perturbed", "a", "b", "c"],
        "no --reference; expected one, or a command after -- to collect it",
    ),
}


@pytest.mark.parametrize("what", MISUSE)
def test_misuse_is_refused_in_one_line(ttrace, reference, candidate, what):
    candidate()
    words, message = MISUSE[what]
    assert ttrace.refuses(*words) == message


@pytest.mark.parametrize("option", ["--json", "--junit"])
@pytest.mark.parametrize(
    ("path", "why"), [("no/directory/report", "No such file or directory"), ("reference", "Is a directory")]
)
def test_a_report_that_cannot_be_written_is_refused_before_the_check(ttrace, reference, candidate, option, path, why):
    candidate()
    assert ttrace.refuses(*CHECK, option, path) == f"{path}: cannot be written ({why}); expected a file"


@pytest.mark.parametrize(
    "words", [("abft", "none"), ("sdc", "--healthy", "none", "--suspect", "none"), ("run", "none")]
)
def test_no_command_works_for_a_report_that_cannot_be_written(ttrace, words):
    assert (
        ttrace.refuses(*words, "--json", "no/directory/report")
        == "no/directory/report: cannot be written (No such file or directory); expected a file"
    )


def test_a_report_that_does_not_fit_on_the_disk_is_no_success(ttrace, reference, candidate):
    candidate()
    _, stderr = ttrace(*CHECK, "--json", "/dev/full", code=2)
    assert stderr == "ttrace: error: /dev/full: cannot be written (No space left on device); expected a file\n"


def test_a_check_that_could_not_look_leaves_no_report_of_an_earlier_one(ttrace, reference, tmp_path):
    (tmp_path / "report.json").write_text('{"verdict": "same"}')
    ttrace.refuses(*CHECK, "--json", "report.json")
    assert not (tmp_path / "report.json").exists()


def test_a_report_that_does_not_fit_into_stdout_is_no_success(ttrace, reference, candidate):
    candidate()
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, *CHECK], cwd=ttrace.directory, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr == "ttrace: error: stdout: cannot be written; expected a place for the report\n"


@pytest.mark.parametrize("words", [("--help",), ("check", "--help"), ("--version",)])
def test_nor_is_a_page_of_help_an_answer_that_nobody_gets(words):
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr == "ttrace: error: stdout: cannot be written; expected a place for the help\n"
