"""The page of `ttrace run`: the candidates, and the report of each."""

import json
import pathlib
import sys

import pytest
from conftest import read_json

from models import SOURCES

PROGRAM = pathlib.Path(__file__).parents[1] / "cli" / "programs" / "train.py"
TRAIN = f"{sys.executable} {PROGRAM}"
RUN = f"""\
reference: {{command: {TRAIN}, inputs: [a.yaml]}}
candidates:
  - {{name: right, command: {TRAIN} --ranks 2, inputs: [a.yaml]}}
  - {{name: wrong, command: {TRAIN} --ranks 2 --wrong layers.0.mlp, inputs: [a.yaml]}}
  - {{name: broken, command: {TRAIN} --fail 3, inputs: [a.yaml]}}
annotations: a.yaml
localize: false
"""
ANNOTATIONS = "embedding:\n  output: {tp_dim: 1}\nlayers.*.mlp.weight:\n  tp_dim: 0\n"


@pytest.fixture
def run(ttrace, tmp_path, monkeypatch):
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("FACTS", json.dumps({"sources": SOURCES}))
    (tmp_path / "ttrace.yaml").write_text(RUN)
    (tmp_path / "a.yaml").write_text(ANNOTATIONS)
    ttrace("run", "--html", "page.html", "--json", "report.json", code=1)
    return tmp_path


def test_each_candidate_opens_its_report(opened, run):
    report = read_json(run / "report.json")
    view = opened(run / "page.html")
    assert view.text("h1") == "different: 1 of 3 candidates"
    rows = {row[0]: row for row in view.table(".candidates")[1:]}
    for candidate in report["candidates"]:
        assert rows[candidate["name"]][1] == candidate["verdict"]
        if candidate["report"]:
            assert rows[candidate["name"]][2:4] == [
                str(candidate["report"]["counts"][key]) for key in ("compared", "fail")
            ]
    assert [row[1] for row in rows.values()] == ["same", "different", "could-not-look"]
    cards = view.page.locator("#troubles .root-card").all_inner_texts()
    assert [card.split()[0] for card in cards] == ["wrong", "broken"]
    assert report["candidates"][1]["report"]["root_cause"]["sentence"] in cards[0]
    assert "called at /usr/lib/library.py:17" in cards[0] and report["candidates"][1]["report"]["next"] in cards[0]
    assert report["candidates"][2]["problem"] in cards[1]
    assert view.page.locator(".candidates a").all_inner_texts() == ["right", "wrong"]

    view.page.locator(".candidates").get_by_role("link", name="wrong").click()
    view.page.wait_for_selector("#tensors")
    root = report["candidates"][1]["report"]["root_cause"]
    assert view.page.locator("h1:visible").inner_text() == f"different: {root['name']} output"
    assert view.text(".root-card .sentence") == root["sentence"]
    view.page.locator(".root-card button.name").click()
    view.page.wait_for_selector("article.tensor h1")
    assert view.text("article.tensor h1") == f"{root['name']} output"
    assert view.table("#worst")[1][0] == "[0, 0]"
    view.page.get_by_role("link", name="Back to the report").click()
    view.page.get_by_role("link", name="All candidates").click()
    view.page.get_by_role("link", name="right").click()
    view.page.locator("h1", has_text="same").wait_for()
    assert view.page.locator(".root-card:visible").count() == 0
