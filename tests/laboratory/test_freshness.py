"""`tools/laboratory/refresh`: which pages are older than the code that they measure, and making these again."""

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reproductions.__main__ import TITLES, with_section

import freshness
from evaluations import page
from evidence import EVIDENCE, PUBLISHED, ROOT, Evidence
from freshness import Measurement, later_commits, measurement_in, measurement_of, sentence

REFRESH = ROOT / "tools" / "laboratory" / "refresh"


@pytest.fixture
def refresh(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("refresh", str(REFRESH))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("refresh", loader))
    monkeypatch.setitem(sys.modules, "refresh", module)
    loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Makes `commit(path, text)`, which returns the commit, in a repository that takes the place of this one."""

    def git(*words):
        identity = ("-c", "user.name=t", "-c", "user.email=t")
        done = subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        git("add", path)
        git("commit", "-q", "-m", text)
        return git("rev-parse", "--short=10", "HEAD")

    git("init", "-q")
    monkeypatch.setattr(freshness, "ROOT", tmp_path)
    return commit


def test_a_source_that_was_moved_away_is_noticed():
    missing = [(each.name, path) for each in EVIDENCE for path in each.sources if not (ROOT / path).exists()]
    assert missing == []
    assert [path for path in PUBLISHED if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("evidence", EVIDENCE, ids=lambda evidence: evidence.name)
def test_every_page_names_the_commit_of_each_of_its_parts(evidence):
    measurement = measurement_of(evidence)
    assert measurement, f"{evidence.page} says nowhere when `{evidence.command}` was run"
    assert measurement.commits and (ROOT / evidence.command.split()[0]).exists()


def test_every_part_of_a_page_is_known():
    names = {evidence.name for evidence in EVIDENCE}
    assert {f"evaluations/{name}" for name in page.SECTIONS} == {name for name in names if name.startswith("eval")}
    assert {f"reproductions/{paper}" for paper in TITLES} == {name for name in names if name.startswith("repro")}
    assert len(names) == len(EVIDENCE)
    commands = {evidence.command for evidence in EVIDENCE}
    for path in {evidence.page for evidence in EVIDENCE}:
        said = re.findall(r"^Measured by `([^`]+)`", (ROOT / path).read_text(), re.M)
        assert set(said) <= commands


def test_what_a_page_says_of_its_commands_is_read_again():
    text = "\n".join(
        [
            "# Title",
            sentence("tools/one --only a", 61.4, ["0123456789", "abcdef0123"], "2 cores, x86_64"),
            sentence("tools/one", 5, ["0123456789, changed"], "2 cores"),
            sentence("tools/two", None, ["fedcba9876"], "2 cores"),
        ]
    )
    assert measurement_in(text, "tools/one --only a") == Measurement(["0123456789", "abcdef0123"], 61)
    assert measurement_in(text, "tools/one") == Measurement(["0123456789"], 5)
    assert measurement_in(text, "tools/two") == Measurement(["fedcba9876"], None)
    assert measurement_in(text, "tools/three") is None


def test_only_later_commits_to_what_is_measured_make_a_page_older(repository):
    first = repository("src/a.cpp", "one")
    second = repository("src/a.cpp", "two")
    repository(PUBLISHED[0], "page")
    repository("other/b.cpp", "other")
    assert later_commits(Measurement([second], None), ["src"]) == 0
    assert later_commits(Measurement([first], None), ["src"]) == 1
    assert later_commits(Measurement([second, first], None), ["src"]) == 1  # a page in parts is as old as its oldest
    assert later_commits(Measurement([second], None), ["."]) == 1  # pages are no source


def test_a_page_of_a_commit_that_is_not_in_the_history_is_old(repository, refresh):
    repository("src/a.cpp", "one")
    measurement = Measurement(["0123456789"], 60)
    assert later_commits(measurement, ["src"]) is None
    age = refresh.Age(Evidence("name", "page.md", "command", ("src",)), measurement, None)
    assert age.is_old() and "commit not known" in str(age)


def test_the_tree_that_is_measured_has_changed_unless_pages_alone_have(repository):
    commit = repository("src/a.cpp", "one")
    repository(PUBLISHED[0], "page")
    (freshness.ROOT / PUBLISHED[0]).write_text("again")
    assert ", changed" not in freshness.commit() and freshness.commit() != commit
    (freshness.ROOT / "src/a.cpp").write_text("two")
    assert freshness.commit().endswith(", changed")


def test_old_parts_are_made_again_one_by_one_and_each_command_is_over_before_the_next(
    refresh, tmp_path, monkeypatch, capfd
):
    script = tmp_path / "measure"
    script.write_text('#!/bin/sh\necho "$1" >> made\nexit "$2"\n')
    script.chmod(0o755)
    monkeypatch.setattr(refresh, "ROOT", tmp_path)
    ages = [
        refresh.Age(Evidence(name, "page.md", f"{script} {name} {code}", ()), Measurement(["0123456"], 120), 3)
        for name, code in (("a", 2), ("b", 0), ("c", 1))
    ]
    assert refresh.make_again(ages) == 2
    assert (tmp_path / "made").read_text().split() == ["a", "b", "c"]
    said = capfd.readouterr().err
    assert f"[2/3] {script} b 0 (2 min)" in said and f"{script} a 2: exit code 2" in said


def test_how_long_it_takes_is_said_of_those_that_say_it(refresh):
    def age(seconds):
        return refresh.Age(EVIDENCE[0], Measurement(["0123456"], seconds), 1)

    assert refresh.total([age(90), age(210)]) == "5 min"
    assert refresh.total([age(90), age(None)]) == "2 min, and 1 whose pages do not say how long they take"


def test_the_list_has_what_was_asked_for_and_nothing_unknown():
    def listed(*words):
        return subprocess.run([REFRESH, "--list", *words], capture_output=True, text=True, timeout=60)

    papers = listed("reproductions")
    assert papers.returncode in (0, 1)
    lines = [line.split() for line in papers.stdout.splitlines() if line.startswith("  ")]
    assert [line[0] for line in lines] == [f"reproductions/{paper}" for paper in TITLES]
    unknown = listed("no-such-page")
    assert unknown.returncode == 2 and "'no-such-page' is no evidence" in unknown.stderr


def test_the_tables_of_one_paper_leave_the_others_as_they_are():
    before = "# Papers\n\n## One\n\nold\n\n### A table\n\nMeasured.\n\n## Two\n\nkept\n"
    assert with_section(before, "One", r"new \1") == "# Papers\n\n## One\n\nnew \\1\n\n## Two\n\nkept\n"
    assert with_section(before, "Two", "new") == before.replace("kept\n", "new\n")
    assert Path(ROOT / "tools/laboratory/reproductions/RESULTS.md").read_text().count("\n## ") == len(TITLES) + 1
