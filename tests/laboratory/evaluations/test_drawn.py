import argparse
import json

import pytest

from evaluations import drawn
from evaluations.drawn import draw, render, row_of


def test_a_draw_is_the_same_every_time_and_draws_differ():
    first = [draw(i) for i in range(30)]
    assert first == [draw(i) for i in range(30)]
    assert len({one.model.arguments for one in first}) == 30
    assert {one.dtype for one in first} == {"bf16", "fp32"}
    assert {word for one in first for word in one.model.arguments.split()} >= {"adam", "sgd", "--arch", "--experts"}
    for one in first:
        names = [configuration.name for configuration in one.configurations]
        assert len(names) == len(set(names)) > 1


MEASURED = """name,kind,verdict,allowed,rel_err,scale,scale_allowed,row,row_allowed,element,element_allowed
a,output,pass,0.1,0.05,-0.003,0.004,,,0.2,0.8
b,output,fail,0.1,0.02,0.001,0.004,0.3,0.2,0.2,0.8
c,main_grad,untrusted,3,1.5,0.5,0.1,,,,
"""


@pytest.fixture
def candidate(tmp_path):
    (tmp_path / "measured.csv").write_text(MEASURED)
    return tmp_path


REPORT = {
    "verdict": "different",
    "tests": 7,
    "counts": {"untrusted": 1},
    "findings": [{"message": "b: row", "verdict": "fail"}, {"message": "c: noise", "verdict": "untrusted"}],
}


def test_a_row_has_the_largest_ratio_of_each_statistic_of_what_is_trusted(candidate):
    configuration = draw(0).configurations[0]
    row = row_of(configuration, candidate, REPORT)
    assert row["largest"]["rel_err"] == (0.5, "a output")
    assert row["largest"]["scale"] == (0.75, "a output")
    assert row["largest"]["row"] == (pytest.approx(1.5), "b output")
    assert row["alarms"] == ["b: row"]
    assert not row["same"]
    json.dumps(row)


def test_the_candidate_that_equals_its_reference_has_no_outcome(candidate):
    (candidate / "measured.csv").write_text("name,kind,verdict,rel_err\na,output,pass,0\nn,input,pass,\n")
    report = {**REPORT, "verdict": "same", "findings": []}
    assert row_of(draw(0).configurations[0], candidate, report | {"tests": 1})["outcome"] is None


def test_outcomes_that_are_the_same_count_once(candidate, monkeypatch):
    monkeypatch.setattr(drawn, "commit", lambda: "abc")
    rows = [row_of(each, candidate, REPORT) | {"seconds": 2} for each in draw(0).configurations[:3]]
    rows[2] = rows[2] | {"outcome": "other", "same": True, "alarms": []}
    text = "\n".join(render(rows))
    assert "3 configurations of 1 models, with 2 distinct outcomes" in text
    assert "**2 false alarms**" in text
    assert text.count("b: row") == 2
    assert "Measured by `tools/laboratory/draw --discard` in 6 s, at commit abc: " in text


def test_figures_outlive_traces_that_are_discarded(candidate, tmp_path, monkeypatch):
    row = row_of(draw(0).configurations[0], candidate, REPORT)
    home = drawn.home_of(tmp_path, draw(0))
    monkeypatch.setattr(drawn, "collect_draw", lambda directory, one: home.mkdir() or (home / "tolerance.yaml").touch())
    monkeypatch.setattr(drawn, "judge_draw", lambda directory, one: [row])
    options = argparse.Namespace(directory=tmp_path, judge=False, discard=True)
    first = drawn.measure(options, draw(0))
    assert not home.exists()
    monkeypatch.setattr(drawn, "judge_draw", lambda directory, one: pytest.fail("judged again"))
    assert json.dumps(drawn.measure(options, draw(0))) == json.dumps(first)
