"""The page of a wrong program and of its correct twin, held against the JSON and the CSV of the same check."""

import re

import pytest
from conftest import read_csv, read_json
from forged import LAYERS, training_run
from playwright.sync_api import expect
from program import Program

from models import CHECK, FILES, WIDTH, WRONG_LAYER, record_candidate, record_reference, wrong_half

ROOT = f"layers.{WRONG_LAYER}.mlp"


@pytest.fixture(scope="module")
def different(tmp_path_factory):
    ttrace = Program(tmp_path_factory.mktemp("different"))
    record_reference(ttrace)
    record_candidate(ttrace, wrong_half())
    ttrace(*CHECK, *FILES, code=1)
    return ttrace.directory


@pytest.fixture
def same(ttrace):
    record_reference(ttrace)
    record_candidate(ttrace, training_run(4))
    ttrace(*CHECK, *FILES, code=0)
    return ttrace.directory


def nearly(text, value):
    """What a page rounds to three digits."""
    return float(text.replace(",", "")) == pytest.approx(float(value), rel=0.006)


def cells_of(view):
    """By layer and column, the text of a cell and its class."""
    view.details("These cells as a table")
    cells = {}
    for table in view.page.locator("table.matrix").all():
        rows = table.evaluate("t => [...t.rows].map(r => [...r.cells].map(c => [c.innerText.trim(), c.className]))")
        head = [text for text, _ in rows[0]]
        for row in rows[1:]:
            for column, cell in zip(head[1:], row[1:], strict=True):
                if cell[0]:
                    cells[row[0][0], column] = cell
    return cells


def test_the_overview_says_what_the_json_says(opened, different):
    report = read_json(different / "report.json")
    view = opened(different / "page.html")
    root = report["root_cause"]
    assert (root["name"], root["kind"]) == (ROOT, "output")
    assert view.text("h1") == f"different: {ROOT} output"
    assert view.text(".root-card .sentence") == root["sentence"]
    assert view.page.evaluate("document.body.innerText").count(root["sentence"]) == 1
    assert view.page.locator(".root-card").count() == len(report["roots"]) == 1
    assert f"{report['counts']['fail']} fail" in view.text(".counts p")
    assert view.text(".command code") == (
        "ttrace check --reference reference --candidate candidate -a a.yaml -t t.yaml"
    )
    assert "2 ranks (tp=2) against 1 rank" in view.text("#compared summary")
    assert not view.page.locator(".mesh").count()
    view.details("What was compared")
    assert "2 ranks: tp=2" in view.text(".mesh figcaption")
    assert "outlined ranks hold the error of the first root cause: 1" in (
        view.page.locator(".mesh svg").get_attribute("aria-label")
    )
    order = view.page.locator("main section").evaluate_all("all => all.map(s => s.id).filter(Boolean)")
    assert order == ["roots", "next", "compared", "heatmap", "curves", "tensors"]


def test_each_cell_of_the_heat_map_is_the_worst_of_its_tensors(opened, different):
    view = opened(different / "page.html")
    cells = cells_of(view)
    expected = {}
    for row in read_csv(different / "all.csv"):
        name = re.fullmatch(r"layers\.(\d+)\.(.*)", row["name"])
        key = (name[1], f"{name[2]} {row['kind']}") if name else (row["name"], row["kind"])
        expected.setdefault(key, []).append(row)
    assert cells.keys() == expected.keys()
    for key, (text, mark) in cells.items():
        ratios = [float(row["ratio"]) for row in expected[key] if row["ratio"]]
        assert nearly(text, max(ratios)) if ratios else text in {row["verdict"] for row in expected[key]}
        wrong = any(row["verdict"] == "fail" for row in expected[key])
        is_root = key == (str(WRONG_LAYER), "mlp output")
        assert mark == ("root" if is_root else "explained" if wrong else ""), key
    assert sum(mark == "explained" for _, mark in cells.values()) == 2


def test_keys_and_the_mouse_lead_from_the_heat_map_to_a_tensor(opened, different):
    view = opened(different / "page.html")
    heat = view.page.locator(".heat").first  # that of the root
    heat.focus()
    at = view.page.locator("#announcement")
    assert at.inner_text().startswith(f"layer {WRONG_LAYER}, mlp output")
    for _ in range(WRONG_LAYER):
        view.page.keyboard.press("ArrowUp")
    view.page.keyboard.press("Home")
    assert at.inner_text().startswith("layer 0, ") and "mlp output" not in at.inner_text()
    for _ in range(WRONG_LAYER):
        view.page.keyboard.press("ArrowDown")
    for _ in range(20):
        if at.inner_text().startswith(f"layer {WRONG_LAYER}, mlp output"):
            break
        view.page.keyboard.press("ArrowRight")
    assert "fail, exceeds-tolerance" in at.inner_text() and "root cause; 2 of 2 tensors wrong" in at.inner_text()
    box = heat.locator(".cursor").bounding_box()
    view.page.keyboard.press("Enter")
    view.page.wait_for_selector("article.tensor h1")
    assert view.text("article.tensor h1") == f"{ROOT} output"
    view.page.go_back()
    view.page.wait_for_selector("#heatmap")
    view.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    view.page.wait_for_selector("article.tensor h1")
    assert view.text("article.tensor h1") == f"{ROOT} output"


def test_the_page_of_a_tensor_shows_which_half_is_wrong(opened, different):
    report = read_json(different / "report.json")
    root = report["root_cause"]
    view = opened(different / "page.html")
    view.page.locator(".root-card button").click()
    view.page.wait_for_selector("article.tensor h1")

    statistics = view.table("#statistics")
    assert nearly(statistics[1][1], root["rel_err"]) and nearly(statistics[1][3], root["allowed"])
    assert nearly(statistics[1][4].removesuffix(" ×"), root["ratio"])

    figures = view.page.locator(".shard-figure")
    view.details("box")
    assert figures.nth(0).locator("li").all_inner_texts() == ["[0:4, 0:8]: rank 0"]
    assert figures.nth(1).locator("li").all_inner_texts() == ["[0:4, 0:4]: rank 0", "[0:4, 4:8]: rank 1"]

    view.details("This map as a table")
    table = view.table("#error-map-table")
    rounding = max(float(cell) for row in table[1:] for cell in row[1 : 1 + WIDTH // 2] if cell != "=")
    for row in table[1:]:
        assert all(float(cell) > 20 * rounding for cell in row[1 + WIDTH // 2 :])

    worst = view.table("#worst")
    assert worst[1][0] == str(root["worst"]["index"]) and worst[1][1] == "1"
    assert float(worst[1][2]) == pytest.approx(root["worst"]["reference"], rel=1e-5)
    assert float(worst[1][3]) == pytest.approx(root["worst"]["candidate"], rel=1e-5)
    assert len(worst) == 11 and all(row[1] == "1" for row in worst[1:])


def test_what_follows_from_a_root_leads_back_to_it(opened, different):
    view = opened(different / "page.html")
    view.page.locator("#search").fill(f"layers.{LAYERS - 1}.mlp")
    view.page.locator("#tensors td .link").first.click()
    view.page.wait_for_selector("article.tensor h1")
    view.page.get_by_role("button", name=f"{ROOT} output").click()
    expect(view.page.locator("article.tensor h1")).to_have_text(f"{ROOT} output")
    assert "Root cause: " in view.text("article.tensor")


def test_the_curves_are_those_of_the_check(opened, different):
    view = opened(different / "page.html")
    view.details("These curves as a table")
    assert view.page.locator("#curve").input_value() == "layers.*.mlp output"
    rows = read_csv(different / "all.csv")
    tolerances = (different / "t.yaml").read_text()
    for layer, error, estimate, allowed in view.table("#curve-table")[1:]:
        of_layer = [row for row in rows if row["name"] == f"layers.{layer}.mlp" and row["kind"] == "output"]
        assert nearly(error, max(float(row["rel_err"]) for row in of_layer))
        assert nearly(allowed, of_layer[0]["allowed"])
        line = re.search(rf"output:(?:\n    .*)*?\n    layers.{layer}.mlp: (.*)", tolerances)[1]
        numbers = {name: float(re.search(rf"{name}: ([^,}}]+)", line)[1]) for name in ("estimate", "floor")}
        assert nearly(estimate, max(numbers.values()))


def test_the_table_is_searched_filtered_sorted_and_paged(opened, different):
    report = read_json(different / "report.json")
    rows = read_csv(different / "all.csv")
    view = opened(different / "page.html")
    assert view.text("#listed") == f"{report['counts']['fail']} tensors, page 1 of 1"
    view.page.locator("#verdict").select_option("all")
    assert view.text("#listed") == f"{len(rows)} tensors, page 1 of {-(-len(rows) // 50)}"
    view.page.get_by_role("button", name="Last").click()
    listed = view.table("table.listing")[1:]
    assert [row[2] for row in listed] == [row["name"] for row in rows][-len(listed) :]
    view.page.get_by_role("button", name="ratio").click()
    ratios = [float(row[7]) for row in view.table("table.listing")[1:6]]
    assert ratios == sorted(ratios, reverse=True) and nearly(view.table("table.listing")[1][7], max(ratios))
    view.page.locator("#kind").select_option("main_grad")
    view.page.locator("#search").fill("1.MLP")
    assert [row[2] for row in view.table("table.listing")[1:]] == ["layers.1.mlp.weight"]


def test_the_page_of_the_correct_twin_accuses_nothing(opened, same):
    report = read_json(same / "report.json")
    view = opened(same / "page.html", scheme="dark")
    assert report["verdict"] == "same" and view.text("h1") == "same"
    assert view.page.locator(".root-card").count() == 0
    cells = cells_of(view)
    assert len(cells) > 30 and not any(mark for _, mark in cells.values())
    assert view.text("#listed").startswith(f"{len(read_csv(same / 'all.csv'))} tensors")
    assert view.page.locator("#tensors .pill.fail").count() == 0


def test_a_page_follows_the_scheme_of_the_system(opened, different):
    view = opened(different / "page.html")
    light = view.page.evaluate("getComputedStyle(document.body).backgroundColor")
    view.page.emulate_media(color_scheme="dark")
    assert view.page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_the_page_says_that_a_trace_holds_less_by_design(opened, ttrace):
    record_reference(ttrace)
    less = [tensor for tensor in training_run(4) if tensor.kind != "grad_output"]
    record_candidate(ttrace, less, not_seen=[{"reason": "imported in part", "everything": True}])
    ttrace(*CHECK, *FILES, code=0)
    report = read_json(ttrace.directory / "report.json")
    view = opened(ttrace.directory / "page.html")
    assert view.text("h1") == "same, of what both traces hold"
    assert report["partial"].startswith("the candidate holds less by design (imported in part): ")
    assert view.text(".reservation") == report["partial"]
