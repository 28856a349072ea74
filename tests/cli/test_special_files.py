"""Pipes, devices and links: a file that others name is a regular one, or is refused at once."""

import os

import pytest
from conftest import CHECK


def special(tmp_path, kind):
    """The name of one in the directory."""
    path = tmp_path / "special"  # not .yaml: the fixture reads those
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path.name


@pytest.mark.parametrize("kind", ["a pipe", "a link to a device"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            CHECK[:-1],
            "an annotation file or a preset: megatron_gpt, megatron_llama, megatron_mixtral, megatron_moe, "
            "torch_fsdp2_tp",
        ),
        ((*CHECK, "-t"), "a file of `ttrace estimate-tolerance`"),
        (("run",), "a file that says what to run: `ttrace run --help` shows one"),
        (("abft", "candidate", "--e-max"), "a file of `ttrace calibrate`"),
        (("history",), "a history that `ttrace check --history` made"),
    ],
)
def test_what_is_no_regular_file_is_not_read(ttrace, reference, candidate, tmp_path, kind, words, expected):
    candidate()
    name = special(tmp_path, kind)
    assert ttrace.refuses(*words, name) == f"{name}: not a regular file; expected {expected}"


@pytest.mark.parametrize("kind", ["a pipe", "a link to a device"])
def test_a_check_is_added_to_no_pipe_and_no_device(ttrace, reference, candidate, tmp_path, kind):
    candidate()
    stdout, stderr = ttrace(*CHECK, "--history", special(tmp_path, kind), code=2)
    assert stdout.startswith("same\n")
    expected = "expected a history that `ttrace check --history` made"
    assert stderr == f"ttrace: error: special: not a regular file; {expected}\n"


def test_an_annotation_file_may_be_a_link(ttrace, reference, candidate, tmp_path):
    candidate()
    (tmp_path / "a.yaml").rename(tmp_path / "b.yaml")
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    ttrace.reports(*CHECK, code=0)


@pytest.mark.parametrize("kind", ["a pipe", "a link to a device"])
def test_an_input_of_a_run_that_is_no_regular_file_is_refused(ttrace, tmp_path, kind):
    name = special(tmp_path, kind)
    (tmp_path / "ttrace.yaml").write_text(
        f"reference: {{command: 'true', inputs: [{name}]}}\n"
        "candidates: [{name: a, command: 'true', inputs: [ttrace.yaml]}]\n"
    )
    stdout, stderr = ttrace("run", "ttrace.yaml", code=2)
    assert stderr.splitlines()[-1].endswith(f"{name}: not a regular file; expected a regular file")


@pytest.mark.parametrize("target", ["elsewhere.h5", "/dev/zero", "/nothing"])
def test_a_link_is_no_rank_file(ttrace, reference, candidate, tmp_path, target):
    path = candidate() / "rank-00001.h5"
    path.rename(tmp_path / "candidate" / "elsewhere.h5")
    path.symlink_to(target)
    assert ttrace.refuses(*CHECK) == "candidate/rank-00001.h5: a symbolic link; expected a readable file"


def test_a_pipe_is_no_rank_file(ttrace, reference, candidate):
    path = candidate() / "rank-00001.h5"
    path.unlink()
    os.mkfifo(path)
    assert ttrace.refuses(*CHECK) == "candidate/rank-00001.h5: not a regular file; expected a readable file"
