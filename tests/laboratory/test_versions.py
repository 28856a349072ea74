"""`tools/versions`: its table of releases, what is asked of pip, how a run goes on that was stopped, and the page."""

import contextlib
import json
import subprocess
from dataclasses import replace

import pytest

from programs.runs import Row, Verdict
from versions import measure, table
from versions.measure import Result
from versions.page import Line, page
from versions.table import Release, releases

SAME = Verdict("same", compared=9, proved=8)
FOUND = Verdict("different", "loss scalar", [], "1 % too large", 9, 5)


def row(correct=SAME, wrong=FOUND):
    return Row("0123456789", 2.5, correct, wrong)


@pytest.fixture(scope="module")
def release():
    (found,) = releases(
        "torch:\n  programs: [token_mean, averaged]\n  tests: [test_record.py]\n  releases: [[torch==2.4.1]]\n"
    )
    return found


def test_each_package_has_two_releases_or_more_and_correct_programs_with_wrong_twins():
    found = releases()
    packages = {each.package for each in found}
    assert packages == {
        "torch", "transformers", "accelerate", "lightning", "deepspeed", "megatron-core", "torchtitan"
    }  # fmt: skip
    assert all(sum(each.package == package for each in found) >= 2 for package in packages)
    assert all(program.shows and program.mistake for each in found for program in each.programs)
    assert len({each.name for each in found}) == len(found)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("p:\n  programs: [no_such]\n  releases: [[p==1]]\n", "p: no program no_such"),
        ("p:\n  programs: []\n  releases: [[q==1]]\n", "p: expected 'p==VERSION' first, in 'q==1'"),
        ("p:\n  programs: []\n  releases: [[p>=1]]\n", "p: expected 'p==VERSION' first"),
        ("p:\n  programs: []\n  release: [[p==1]]\n", "p: nobody reads release"),
    ],
)
def test_a_table_that_says_no_release_is_named(text, what):
    with pytest.raises(ValueError, match=what):
        releases(text)


def test_torch_is_asked_for_as_the_build_for_the_cpu_alone_where_there_are_two(release, monkeypatch):
    monkeypatch.setattr(table, "_has_two_builds", lambda: True)
    assert release.asked_for(any_build=False) == ("torch==2.4.1+cpu",)
    assert release.asked_for(any_build=True) == ("torch==2.4.1",)
    others = replace(release, requirements=("torchmetrics==1.9.0", "torch==2.4.1+cpu"))
    assert others.asked_for(any_build=False) == others.requirements
    monkeypatch.setattr(table, "_has_two_builds", lambda: False)
    assert release.asked_for(any_build=False) == ("torch==2.4.1",)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """measured(release) -> which of its programs and tests were run; those of `measured.breaks` stop the run"""
    ran = []

    def runs(program, python, work):
        if program.name in measured.breaks:
            raise KeyboardInterrupt
        ran.append(program.name)
        return row()

    def tests(file, python, log):
        ran.append(file)
        return {"passed": 3}

    def measured(release, **options):
        ran.clear()
        with contextlib.suppress(KeyboardInterrupt):
            list(measure.measure(release, **{"any_build": False, "keep": False, **options}))
        return list(ran)

    measured.breaks, measured.commit = set(), "0123456789"
    monkeypatch.setattr(measure, "WORK", tmp_path)
    monkeypatch.setattr(measure, "ROWS", tmp_path / "rows.json")
    monkeypatch.setattr(measure, "commit", lambda: measured.commit)
    monkeypatch.setattr(
        measure, "_install", lambda release, environment, any_build: environment.mkdir(parents=True, exist_ok=True)
    )
    monkeypatch.setattr(measure, "_facts", lambda python, release: ("3.11.7", "2.4.1+cpu", [release.version]))
    monkeypatch.setattr(measure.runs, "measured", runs)
    monkeypatch.setattr(measure, "_test", tests)
    monkeypatch.setattr(measure.warm, "server", lambda python: contextlib.nullcontext())
    return measured


def test_a_run_that_was_stopped_goes_on_where_it_was_and_leaves_its_environment_until_it_is_over(
    release, measured, tmp_path
):
    environment = tmp_path / release.name / "environment"
    measured.breaks = {"averaged"}
    assert measured(release) == ["token_mean"]
    assert environment.exists() and not measure.is_measured(release)
    measured.breaks = set()
    assert measured(release) == ["averaged", "test_record.py"]
    assert not environment.exists() and measure.is_measured(release)
    assert measured(release) == []


def test_at_another_commit_or_in_a_changed_tree_all_is_run_again(release, measured):
    everything = ["token_mean", "averaged", "test_record.py"]
    assert measured(release) == everything
    measured.commit = "abcdef0123"
    assert not measure.is_measured(release)
    assert measured(release) == everything
    measured.commit = "abcdef0123, changed"
    assert measured(release) == measured(release) == everything


def test_an_environment_stays_where_it_is_asked_for(release, measured, tmp_path):
    measured(release, keep=True)
    assert (tmp_path / release.name / "environment").exists()


def test_a_release_that_is_not_to_be_had_says_why_and_is_tried_again(release, measured, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(measure, "WORK", tmp_path)
    monkeypatch.setattr(measure, "ROWS", tmp_path / "rows.json")
    monkeypatch.setattr(measure, "commit", lambda: "0123456789")

    def refuse(command, **_):
        assert command[0] == "tools/venv"
        said = "setup: installing\nERROR: Could not find it (from versions: 2.13.0, 2.14.1)\nERROR: No matching\n"
        return subprocess.CompletedProcess(command, 1, "", said)

    monkeypatch.setattr(measure.subprocess, "run", refuse)
    monkeypatch.setattr(table, "_has_two_builds", lambda: True)
    (result,) = measure.measure(release, any_build=False, keep=False)
    assert result.refused == "no build for the CPU alone that pip knows of: Could not find it"
    assert not measure.is_measured(release)
    (result,) = measure.measure(release, any_build=True, keep=False)
    assert result.refused == "Could not find it"
    assert "Could not find" in (tmp_path / release.name / "install.txt").read_text()


def test_the_page_says_what_each_release_came_to_and_what_could_not_be_had(release):
    everything = {"token_mean": row(), "averaged": row()}
    told = dict(commit="0123456789", python="3.11.7", torch="2.4.1+cpu", seconds=61.0)
    whole = Result(programs=everything, tests={"test_record.py": {"passed": 7, "skipped": 1}}, **told)
    silent = replace(whole, programs=everything | {"averaged": row(wrong=SAME)})
    broken = replace(whole, programs=everything | {"averaged": row(Verdict("not run", sentence="no_module"))})
    failed = replace(whole, tests={"test_record.py": {"failed": 2, "passed": 5}})
    others = [replace(release, version=version) for version in ("1", "2", "3", "4", "5")]
    results = [whole, silent, broken, failed, Result("0123456789", refused="No matching distribution")]
    by_name = {each.name: result for each, result in zip(others, results, strict=True)}
    assert [Line(each, by_name[each.name]).expected() for each in others] == [True, False, False, False, False]
    text = page([*others, release], by_name)
    assert "4 of 6 releases were run: 7 of 7 correct programs are *same*, 6 of 7 wrong twins *different*" in text
    cells = "| torch | 1 | 2.4.1+cpu | 3.11.7 | 2 of 2 | 2 of 2 | 7 passed, 1 skipped | 61 | 0123456789 |"
    assert cells in text
    assert "- torch 2, averaged, wrong: same" in text
    assert "- torch 3, averaged: could not be run: no\\_module" in text
    assert "- torch 4, test_record.py: 2 failed" in text
    assert "## Could not be had here\n\n- torch 5: No matching distribution" in text
    assert "Not run yet: torch-2.4.1." in text
    assert "Measured by `tools/versions` in 244 s, at commit 0123456789" in text


def test_a_result_is_read_as_it_was_written(release, measured):
    measured(release)
    (result,) = measure.kept().values()
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert result.programs["averaged"] == row()
    measure.forget(release)
    assert measure.kept() == {}


def test_the_name_of_a_release_is_its_package_and_version(release):
    assert (release.name, release.version) == ("torch-2.4.1", "2.4.1")
    assert isinstance(release, Release)
