"""With TTRACE_SEAL_KEY nobody's tolerances are taken but those of who has the key."""

import pytest
from conftest import CHECK
from forged import change, training_run

KEY = "TTRACE_SEAL_KEY"
LINE = "seal_by_key: k"
OVERRIDE = "overrides:\n  - {pattern: 'layers.1.mlp', kind: output, allowed: 0.9, reason: a test}"


@pytest.fixture
def sealed(project, monkeypatch):
    monkeypatch.setenv(KEY, "a key of a CI that nobody knows")
    project.estimate()
    project.record("candidate", change(training_run(9), lambda x: x * 1.5, kind="output", name="layers.1.mlp"))
    return project


def test_a_file_that_was_sealed_with_the_key_is_taken_with_it_and_without(sealed, monkeypatch):
    text = (sealed.directory / "t.yaml").read_text()
    assert text.splitlines()[-1].startswith(LINE) and text.count(LINE) == 1
    assert sealed.check("-t", "t.yaml", code=1).startswith("different\n")
    monkeypatch.delenv(KEY)
    assert sealed.check("-t", "t.yaml", code=1).startswith("different\n")


@pytest.mark.parametrize("edit", ["override", "comment", "number", "none", "own", "other key", "moved", "twice"])
def test_any_other_file_is_refused(sealed, monkeypatch, edit):
    path = sealed.directory / "t.yaml"
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    if edit == "override":
        sealed.edit("overrides: []", OVERRIDE)
    elif edit == "comment":
        path.write_text("# nothing\n" + text)
    elif edit == "number":
        sealed.edit("margin: 3", "margin: 4")
    elif edit == "none":
        path.write_text("".join(lines[:-1]))
    elif edit == "own":
        monkeypatch.setenv(KEY, "another key that somebody has made up")
        sealed("estimate-tolerance", "--seal", "-o", "t.yaml", code=0)
        monkeypatch.setenv(KEY, "a key of a CI that nobody knows")
    elif edit == "other key":
        monkeypatch.setenv(KEY, "another key that somebody has made up")
    elif edit == "moved":
        path.write_text(lines[-1] + "".join(lines[:-1]))
    else:
        path.write_text(text + lines[-1])
    refusal = sealed.refuses(*CHECK, "-t", "t.yaml")
    assert "expected tolerances that were sealed with the key in TTRACE_SEAL_KEY" in refusal


def test_who_has_the_key_seals_an_edit(sealed):
    sealed.edit("overrides: []", OVERRIDE)
    sealed.refuses(*CHECK, "-t", "t.yaml")
    sealed("estimate-tolerance", "--seal", "-o", "t.yaml", code=0)
    assert sealed.check("-t", "t.yaml", code=0).startswith("same\n")
    assert (sealed.directory / "t.yaml").read_text().count(LINE) == 1


@pytest.mark.parametrize(("key", "said"), [("", "empty, as where a CI keeps secrets"), ("short", "too short a key")])
def test_an_empty_key_is_not_no_key(sealed, monkeypatch, key, said):
    monkeypatch.setenv(KEY, key)
    assert said in sealed.refuses(*CHECK, "-t", "t.yaml")
    assert said in sealed.refuses("estimate-tolerance", "--seal", "-o", "t.yaml")


def test_sealing_takes_a_key(sealed, monkeypatch):
    monkeypatch.delenv(KEY)
    assert "expected the key there" in sealed.refuses("estimate-tolerance", "--seal", "-o", "t.yaml")


def test_commands_do_not_get_the_key(sealed):
    # Whoever has it makes seals, and a candidate's program may be anybody's.
    show = ("sh", "-c", f"echo key ${{{KEY}-none}}, $OTHER")
    printed = sealed("collect", "-o", "shown", "--", "env", "OTHER=other", *show, code=2)[0]
    assert printed == "key none, other\n"
    assert "key none,\n" in sealed("calibrate", "-o", "e.yaml", "--", "sh", "-c", show[2] + " >&2", code=2)[1]
