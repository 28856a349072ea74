"""Reports as Python sees them: what the JSON of `ttrace check` has."""

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time

import numpy
import pytest
from conftest import PACKAGE, halves, model

import ttrace
from traces import Tensor, record_run

OPTIONS = {"annotations": "gpt.yaml"}


def as_json(value):
    """A report's value by the names of the JSON."""
    if dataclasses.is_dataclass(value):
        return {
            {"pass_": "pass", "passed": "pass"}.get(field.name, field.name): as_json(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name != "_checked"
        }
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, tuple) else value


def incomplete(traces):
    record_run(traces / "incomplete", halves(model(factor=2)), axes="tp=2")
    (traces / "incomplete" / "rank-00001.h5").unlink()
    return "incomplete"


def not_finite(traces):
    tensors = model()
    tensors[1] = tensors[1].with_values(numpy.full((4, 6), numpy.nan, "float32"))
    return record_run(traces / "nan", halves(tensors), axes="tp=2").name


@pytest.mark.parametrize(
    "make",
    [lambda _: "correct", lambda _: "candidate", incomplete, not_finite],
    ids=["same", "different", "rank", "nan"],
)
def test_a_report_is_what_check_writes_as_json(traces, make):
    candidate = make(traces)
    report = ttrace.check(candidate, "reference", **OPTIONS)
    command = ["check", "--reference", "reference", "--candidate", candidate, "-a", "gpt.yaml", "--json", "-"]
    process = subprocess.run([os.environ["TTRACE_PROGRAM"], *command], capture_output=True, text=True)
    assert process.returncode == ["same", "different", "could-not-look"].index(report.verdict)
    assert report.to_json() == process.stdout
    values = json.loads(process.stdout)
    assert values.pop("schema") == "ttrace-report/5"
    for field in dataclasses.fields(ttrace.Report):
        if field.default is None:  # may be absent
            values.setdefault(field.name, None)
    fields = {field.name.rstrip("_") for field in dataclasses.fields(ttrace.Finding)}
    for name in ("first_wrong", "root_cause"):
        if values[name]:  # the first root's diagnosis is there as well
            values[name] = {member: value for member, value in values[name].items() if member in fields}
    assert as_json(report) == values


def test_findings_have_what_was_measured(traces):
    report = ttrace.check("candidate", "reference", **OPTIONS)
    assert (report.same, report.verdict, len(report.findings)) == (False, "different", 2)
    assert report.first_wrong == report.root_cause == report.findings[0]
    worst = report.findings[0].worst
    assert (worst.index, worst.reference, worst.candidate) == ((3, 5), 23, 46)
    assert report.roots[0].diagnosis == "uniform-factor"
    assert [finding.verdict for finding in report.passed] == ["pass"] * 3
    assert str(report).startswith("different\nfirst wrong tensor: mlp output")
    assert report.command.startswith("ttrace check --reference reference --candidate candidate -a gpt.yaml")
    assert report.to_html().startswith("<!doctype html>")


def test_assert_same_passes_what_is_the_same(traces):
    assert ttrace.testing.assert_same("correct", "reference", **OPTIONS).counts.passed == 5


def test_assert_same_fails_with_the_sentence_of_the_report(traces):
    report = ttrace.check("candidate", "reference", **OPTIONS)
    with pytest.raises(AssertionError) as failure:
        ttrace.testing.assert_same("candidate", "reference", **OPTIONS)
    first, _, rest = str(failure.value).partition("\n\n")
    assert first == report.sentence
    assert first.startswith("mlp, output, micro-batch 0: every element is 2 times the reference's")
    assert rest == str(report)


def test_assert_same_fails_where_too_little_was_proved(traces):
    zeros = [Tensor("mlp", numpy.zeros(4, "float32"))]
    for name in ("zero", "zeros"):
        record_run(traces / name, [zeros])
    assert ttrace.check("zeros", "zero").verdict == "could-not-look"
    with pytest.raises(AssertionError, match="could-not-look"):
        ttrace.testing.assert_same("zeros", "zero")


def test_pytest_shows_the_line_of_the_test_and_the_sentence(traces):
    (traces / "test_it.py").write_text(
        "import ttrace\n"
        "def test_mine():\n"
        "    ttrace.testing.assert_same('candidate', 'reference', annotations='gpt.yaml')\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "COLUMNS": "200"},
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert "E       AssertionError: mlp, output, micro-batch 0: every element is 2 times the" in process.stdout
    assert "testing.py" not in process.stdout


def test_other_threads_of_python_run_while_a_check_does(tmp_path):
    values = numpy.random.default_rng(0).standard_normal((64, 1024, 256), "float32")
    for name in ("reference", "candidate"):
        record_run(tmp_path / name, [[Tensor("large", values)]])
    turns, done = [], threading.Event()

    def count():
        while not done.is_set():
            turns.append(time.monotonic())
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    started = time.monotonic()
    report = ttrace.check(tmp_path / "candidate", tmp_path / "reference", threads=1)
    ended = time.monotonic()
    done.set()
    other.join()
    assert report.same
    quarter = (ended - started) / 4
    assert any(started + quarter < turn < ended - quarter for turn in turns)


def test_type_checkers_know_every_option_of_check():
    keywords = {name for name, _ in ttrace._core.check_keywords()} - {"candidate", "reference"}
    assert set(ttrace.check_options.CheckOptions.__annotations__) == keywords | {"pictures"}
