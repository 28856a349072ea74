"""Ratios over checks: the page of `ttrace history`, and that of a run with a history."""

import json
import pathlib
import sys

from forged import change, training_run

from models import CHECK, record_reference
from traces import record_run

GROWS = "layers.1.mlp"
PROGRAM = pathlib.Path(__file__).parents[1] / "cli" / "programs" / "train.py"


def add_check(ttrace, number, factor):
    candidate = change(training_run(4), lambda values: values * factor, kind="output", name=GROWS)
    name = f"candidate-{number}"
    record_run(ttrace.directory / name, [candidate], provenance=json.dumps({"git_commit": f"{number}" * 40}))
    words = [name if word == "candidate" else word for word in CHECK]
    ttrace(*words, "--history", "h.sqlite", code=0 if factor == 1 else 1)


def test_a_ratio_that_grows_is_drawn_over_the_checks(opened, ttrace):
    record_reference(ttrace)
    for number, factor in ((1, 1), (2, 1), (3, 1.001)):
        add_check(ttrace, number, factor)
    ttrace("history", "h.sqlite", "--html", "page.html", code=0)
    history = json.loads(ttrace("history", "h.sqlite", "--json", code=0)[0])
    view = opened(ttrace.directory / "page.html")
    assert view.text("h1") == "3 checks of h.sqlite"
    view.details("These curves as a table")
    shown = [float(row[1]) for row in view.table("#history-table")[1:]]
    assert shown == [round_to(check["largest_ratio"]) for check in history["checks"]]
    (grown,) = [one for one in history["grew"] if one["name"] == GROWS and one["kind"] == "output"]
    rows = view.table(".grew")[1:]
    assert [GROWS, "output"] in [row[:2] for row in rows]
    assert [row for row in rows if row[:2] == [GROWS, "output"]][0][5:] == [str(grown["check"]), "3" * 10]
    view.page.locator("#series").select_option(label=f"{GROWS} output")
    view.details("These curves as a table")
    (tensor,) = [one for one in history["tensors"] if one["name"] == GROWS and one["kind"] == "output"]
    assert [float(row[1]) for row in view.table("#history-table")[1:]] == [
        round_to(ratio["ratio"]) for ratio in tensor["ratios"]
    ]
    view.details("3 checks")
    assert [row[4] for row in view.table(".checks")[1:]] == ["same", "same", "different"]


def round_to(value):
    return float(f"{value:.4g}")


def test_the_page_of_a_run_has_its_history(opened, ttrace, monkeypatch):
    monkeypatch.setenv("CALLS", str(ttrace.directory / "calls"))
    train = f"{sys.executable} {PROGRAM}"
    (ttrace.directory / "a.yaml").write_text("embedding:\n  output: {tp_dim: 1}\nlayers.*.mlp.weight:\n  tp_dim: 0\n")
    (ttrace.directory / "ttrace.yaml").write_text(
        f"reference: {{command: {train}, inputs: [a.yaml]}}\n"
        f"candidates: [{{name: right, command: {train} --ranks 2, inputs: [a.yaml]}}]\n"
        "annotations: a.yaml\n"
    )
    ttrace("run", "--html", "page.html", "--history", "h.sqlite", code=0)
    view = opened(ttrace.directory / "page.html")
    assert view.text("#history-title") == "Over the checks"
    view.details("These curves as a table")
    assert view.table("#history-table")[0] == ["check", "right"]
    view.page.get_by_role("link", name="right").click()
    view.page.wait_for_selector("#tensors")
    view.page.get_by_role("link", name="All candidates").click()
    view.page.locator("#history canvas").wait_for()  # the page is drawn anew
