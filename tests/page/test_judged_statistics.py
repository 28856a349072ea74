"""What a norm does not see is judged by statistics of its own, and a page shows each beside its tolerance."""

from conftest import read_json
from test_report import nearly
from test_statistics import SPOILT, TARGET, run

from models import seed_of
from traces import record_run


def test_every_statistic_stands_beside_its_tolerance(ttrace, opened):
    spoil, sentence = SPOILT["row"]
    for name, seed in (("reference", 0), ("p1", 1), ("p2", 2), ("p3", 3), ("again", 0)):
        record_run(ttrace.directory / name, [run(seed)], provenance=seed_of(seed))
    record_run(ttrace.directory / "candidate", [run(4, spoil)], provenance=seed_of(0))
    perturbed = ("--perturbed", "p1", "p2", "p3", "--rerun", "again")
    ttrace("estimate-tolerance", "-o", "t.yaml", "--reference", "reference", *perturbed, code=0)
    files = ("--html", "page.html", "--json", "report.json")
    ttrace("check", "--reference", "reference", "--candidate", "candidate", "-t", "t.yaml", *files, code=1)
    (finding,) = read_json(ttrace.directory / "report.json")["findings"]

    view = opened(ttrace.directory / "page.html")
    view.page.locator(".root-card button").click()
    view.page.wait_for_selector("article.tensor h1")
    assert view.text("article.tensor h1") == f"{TARGET} output"
    shown = view.text("article.tensor")
    assert "exceeds-tolerance (row)" in shown and sentence in shown
    rows = {row[0]: row for row in view.table("#statistics")}
    assert finding["statistics"].keys() == {"scale", "row", "element"}
    for name, judged in finding["statistics"].items():
        assert nearly(rows[name][1], judged["measured"]) and nearly(rows[name][3], judged["allowed"])
    assert nearly(rows["row"][4].removesuffix(" ×"), finding["ratio"])
    view.details("This map as a table")
    largest = [
        max([0.0, *(float(cell) for cell in row[1:] if cell != "=")]) for row in view.table("#error-map-table")[1:]
    ]
    assert largest.index(max(largest)) == 17
