"""The page of `ttrace sdc`, held against its JSON and CSV: a node that computes one layer's output wrongly."""

import json

import numpy
import pytest
from conftest import read_csv, read_json
from forged import change, training_run
from program import Program

from traces import record_run

WRONG = "layers.2.mlp"
RANK = 1


def flipped(values):
    """One element with another bit: the 20th of a float32."""
    bits = values.copy().view("uint32")
    bits[1, 3] ^= 1 << 20
    return bits.view("float32")


def record_nodes(ttrace, wrong):
    provenance = json.dumps({"command": ["python", "train.py"]})
    run = training_run()
    for name in ("healthy", "again"):
        record_run(ttrace.directory / name, [run, run], axes="tp=2", provenance=provenance)
    record_run(ttrace.directory / "suspect", [run, wrong], axes="tp=2", provenance=provenance)


SDC = ("sdc", "--healthy", "healthy", "--suspect", "suspect", "--rerun", "again")
FILES = ("--html", "page.html", "--json", "report.json", "--csv", "csv")


@pytest.fixture(scope="module")
def different(tmp_path_factory):
    ttrace = Program(tmp_path_factory.mktemp("different"))
    wrong = change(training_run(), flipped, kind="output", name=WRONG)
    wrong = change(wrong, lambda values: values * numpy.float32(1.01), kind="main_grad", name=f"{WRONG}.weight")
    record_nodes(ttrace, wrong)
    ttrace(*SDC, *FILES, code=1)
    return ttrace.directory


def test_the_page_names_the_calls_that_made_an_error(opened, different):
    report = read_json(different / "report.json")
    view = opened(different / "page.html")
    assert view.text("h1") == f"different: {report['differing_tensors']} of {report['tensors']} tensors"
    assert view.page.evaluate("document.body.dataset.verdict") == "different"
    rows = view.table(".origins")[1:]
    assert len(rows) == len(report["origins"]) > 1
    for row, origin in zip(rows, report["origins"], strict=True):
        assert row[0] == f"{origin['name']} {origin['kind']}"
        assert row[3] == str(origin["rank"]) and row[4] == str(origin["index"])
        assert row[5].endswith(origin["healthy_bits"]) and row[6].endswith(origin["suspect_bits"])
    output = next(row for row in rows if row[0] == f"{WRONG} output")
    assert output[4] == "[1, 3]" and output[7] == "20" and output[8] == "1 of 32"
    assert view.text(".command code") == "ttrace sdc --healthy healthy --suspect suspect --rerun again"


def test_the_curves_are_those_of_the_tables(opened, different):
    view = opened(different / "page.html")
    assert view.page.locator("#submodule option:checked").inner_text() == "layers.*.mlp, forward"
    view.details("These curves as a table")
    ranks = {
        (row["iteration"], row["microbatch"], row["rank"]): row
        for row in read_csv(different / "csv" / "ranks.csv")
        if row["submodule"] == "layers.*.mlp" and row["direction"] == "forward"
    }
    for measure in ("frequency", "severity"):
        table = view.table(f"#{measure}-table")
        assert table[0] == ["micro-step", f"rank {RANK}"]  # the other rank computes right
        assert len(table) == 1 + len({key[:2] for key in ranks})
        for microstep, value in table[1:]:
            iteration, microbatch = microstep.split(".")
            expected = float(ranks[iteration, microbatch, str(RANK)][measure])
            assert expected > 0 and float(value) == pytest.approx(expected, rel=0.001)
    (step,) = read_csv(different / "csv" / "steps.csv")
    noise = float(step["gradient_noise"]) / float(step["gradient_norm"])
    assert float(view.table("#steps-table")[1][1]) == pytest.approx(noise, rel=0.001)
    assert view.page.locator("#submodules canvas").count() == 2 and view.page.locator("#steps canvas").count() == 1


def test_the_page_of_two_healthy_nodes_accuses_nothing(opened, ttrace):
    record_nodes(ttrace, training_run())
    ttrace(*SDC, *FILES, code=0)
    view = opened(ttrace.directory / "page.html", scheme="dark")
    assert view.text("h1") == "same: equal to the bit"
    assert view.page.locator(".origins, canvas").count() == 0
