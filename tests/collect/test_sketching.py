"""Large tensors are recorded as sketches; a second run is the first again, or is named."""

import json

import pytest
from conftest import TTRACE, program, run

pytestmark = pytest.mark.usefixtures("warm_programs")


@pytest.fixture
def sketched(collect):
    """sketched(options, arguments of programs/wide.py) -> Collected"""

    def sketched(*options, arguments=(), code=0):
        collected = collect("--sketch", *options, command=program("wide", *arguments))
        assert collected.code == code, collected
        return collected

    return sketched


def check(reference, candidate, *options, code):
    sides = ["--reference", reference.directory, "--candidate", candidate.directory]
    checked = run([TTRACE, "check", *sides, *options, "--json", "-"])
    assert checked.returncode == code, checked.stdout + checked.stderr
    return json.loads(checked.stdout)


def size_of(collected):
    return sum(path.stat().st_size for path in collected.directory.glob("rank-*.h5"))


def test_sketches_are_small_and_show_a_wrong_run(sketched, collect, tmp_path):
    small = sketched()
    whole = collect(command=program("wide"))
    assert size_of(small) < size_of(whole) / 20
    assert check(whole, small, "-t", "default", code=0)["sketched"]
    wrong = sketched(arguments=["wrong"])
    report = check(whole, wrong, "-t", "default", code=1)
    assert (report["root_cause"]["name"], report["root_cause"]["kind"]) == ("1", "output")


def test_a_second_run_records_modules_whole_and_is_the_first_again(sketched):
    first = sketched()
    closer = sketched("--whole", "0", "--again", first.directory)
    assert any("tensors have the bits of" in line for line in closer.messages)
    assert size_of(first) < size_of(closer)
    other = sketched("--again", first.directory, arguments=["other"], code=2)
    (message,) = [line for line in other.messages if "is not the run of" in line]
    assert "the first is" in message and "input" in message


def localize(reference, candidate, output, *command):
    sides = ["--reference", reference.directory, "--candidate", candidate.directory, "-t", "default"]
    whose = ["--run-recorded", *(["--", *command] if command else [])]
    return run([TTRACE, "localize", *sides, "-o", output, "--json", "-", *whose])


def test_localize_records_the_wrong_module_whole_and_sees_its_elements(sketched, tmp_path):
    reference, wrong = sketched(), sketched(arguments=["wrong"])
    before = check(reference, wrong, "-t", "default", code=1)["root_cause"]
    assert before["worst"] is None and before["diagnosis"] is None
    localized = localize(reference, wrong, tmp_path / "closer")
    assert localized.returncode == 1, localized.stderr
    after = json.loads(localized.stdout)["root_cause"]
    assert (after["name"], after["kind"], after["diagnosis"]) == ("1", "output", "uniform-factor")
    assert len(after["worst"]["index"]) == 2
    for side, trace in (("reference", reference), ("candidate", wrong)):
        assert f"have the bits of {trace.directory}" in localized.stderr
        listing = json.loads(run([TTRACE, "inspect", tmp_path / "closer" / side, "--json"]).stdout)
        whole = {tensor["name"] for tensor in listing["ranks"][0]["tensors"] if "sketch" not in tensor}
        assert "1" in whole and "0.weight" not in whole


def test_localize_refuses_a_run_that_is_not_the_first_again(sketched, tmp_path):
    reference, wrong = sketched(), sketched(arguments=["wrong"])
    localized = localize(reference, wrong, tmp_path / "closer", *program("wide", "wrong", "other"))
    assert localized.returncode == 2
    assert f"is not the run of {wrong.directory} again" in localized.stderr


def test_localize_gives_a_sketched_candidate_the_values_of_a_reference_with_elements(sketched, collect, tmp_path):
    reference, wrong = collect(command=program("wide")), sketched(arguments=["wrong"])
    localized = localize(reference, wrong, tmp_path / "again")
    assert localized.returncode == 1, localized.stderr
    (root, *_) = json.loads(localized.stdout)["roots"]
    assert (root["name"], root["standing"]) == ("1", "confirmed")
