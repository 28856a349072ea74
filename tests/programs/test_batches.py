"""The same rows in another batch: --sequences holds them against each other wherever they lie."""

import json

import pytest
from commands import COULD_NOT_LOOK, DIFFERENT, HERE, SAME, TTRACE, run

from sweeps import warm


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """check(words, batch, mistake, *options) -> exit code, output, report of that batch against a padded one"""
    directory = tmp_path_factory.mktemp("batches")

    def collected(words, batch, mistake="", ranks=1):
        trace = directory / f"{words}-{batch}-{mistake}-{ranks}"
        if not trace.exists():
            axes = ["--axes", f"dp={ranks}"] if ranks > 1 else []
            program = [HERE / "kinds" / "batches.py", words, batch]
            command = warm.command(*program, ranks=ranks)
            process = run(TTRACE, "collect", "--no-grad", "-o", trace, *axes, "--", *command, mistake=mistake)
            assert process.returncode == 0, process.stderr
        return trace

    def check(words, batch, mistake="", options=("--bits", "--sequences", "auto"), ranks=1):
        sides = ["--reference", collected(words, "right"), "--candidate", collected(words, batch, mistake, ranks)]
        report = directory / "report.json"
        report.unlink(missing_ok=True)
        process = run(TTRACE, "check", *options, *sides, "--json", report)
        text = process.stdout + process.stderr
        return process.returncode, text, json.loads(report.read_text()) if report.exists() else None

    return check


@pytest.mark.parametrize(
    ("words", "batch", "compared"),
    [
        ("tokens", "left", 10),
        ("tokens", "packed", 10),
        ("tokens", "small", 10),
        ("tokens", "other", 10),
        ("rows", "small", 6),
        ("rows", "other", 6),
    ],
)
def test_rows_that_do_not_depend_on_their_batch_have_the_same_bits_in_any(check, words, batch, compared):
    code, text, report = check(words, batch)
    assert (code, report["verdict"]) == (SAME, "same"), text
    assert report["counts"]["pass"] >= compared and report["counts"]["missing"] == 0, text
    assert batch == "other" or "of what both traces hold" not in text, text


def test_what_one_side_alone_was_given_is_said(check):
    _, text, report = check("tokens", "other")
    assert "of its 26 tokens 8 are in none of the reference" in text, text
    assert "same, of what both traces hold" in text, text


@pytest.mark.parametrize(
    ("words", "batch", "mistake", "first", "sentence"),
    [
        ("tokens", "left", "large_batches", "first output", "a sum in another order"),
        ("tokens", "packed", "neighbour", "mean input", ""),
        ("rows", "other", "large_batches", "first output", "a sum in another order"),
    ],
)
def test_rows_that_depend_on_their_batch_differ_where_they_do(check, words, batch, mistake, first, sentence):
    code, text, report = check(words, batch, mistake)
    assert code == DIFFERENT, text
    assert f"{report['first_wrong']['name'].split(':')[0]} {report['first_wrong']['kind']}" == first, text
    assert sentence in report["roots"][0]["sentence"], text


def test_what_is_no_input_is_no_tokens(check):
    code, text, _ = check("tokens", "left", options=("--bits", "--sequences", "words"))
    assert code == COULD_NOT_LOOK, text
    assert "--sequences words: the reference has no such input of a model" in text, text


def test_a_named_input_tells_as_well(check):
    code, text, _ = check("tokens", "left", options=("--bits", "--sequences", "input_ids"))
    assert code == SAME, text


def test_batches_that_lie_otherwise_are_different_where_nothing_is_said(check):
    code, text, _ = check("tokens", "packed", options=("--bits",))
    assert code == DIFFERENT, text


def test_sequences_that_ranks_pack_are_mapped_as_well(check):
    code, text, report = check("tokens", "packed", ranks=2)
    assert (code, report["verdict"]) == (SAME, "same"), text
    assert report["counts"]["pass"] >= 10 and "of what both traces hold" not in text, text
    code, text, _ = check("tokens", "packed", "neighbour", ranks=2)
    assert code == DIFFERENT, text


def test_rows_of_ranks_that_pad_each_to_a_length_of_its_own_are_not_passed_over(check):
    code, text, _ = check("tokens", "right", ranks=2)
    assert code == COULD_NOT_LOOK, text
    assert "have padded each to the longest of its own samples" in text, text
