"""A margin that is not the default allows more, or less, than what was measured for: the verdict names it."""

import json
import xml.etree.ElementTree as xml

import pytest
from forged import training_run

NAMED = ", within tolerances of margin {} (default 3)"


@pytest.fixture
def same(project):
    project.record("candidate", training_run(9))
    return project


@pytest.mark.parametrize("margin", ["1000", "4.5"])
def test_a_margin_of_its_own_is_named_with_the_verdict(same, margin):
    same(*same.estimate_words(), "--margin", margin, code=0)
    assert same.check("-t", "t.yaml", code=0).startswith(f"same{NAMED.format(margin)}\n")
    assert same.check("-t", "t.yaml", "-q", code=0) == f"same{NAMED.format(margin)}\n"
    same.check("-t", "t.yaml", "--json", "r.json", "--junit", "r.xml", code=0)
    assert json.loads((same.directory / "r.json").read_text())["margin"] == float(margin)
    properties = {one.get("name"): one.get("value") for one in xml.parse(same.directory / "r.xml").iter("property")}
    assert properties["margin"] == margin


def test_the_default_margin_is_not_named(same):
    same.estimate()
    assert same.check("-t", "t.yaml", "--json", "r.json", code=0).startswith("same\n")
    assert "margin" not in json.loads((same.directory / "r.json").read_text())
