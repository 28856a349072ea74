"""128 layers and 200,000 findings: small enough to send, and there at once."""

import subprocess

from conftest import GENERATOR


def test_the_page_of_a_large_model_is_small_and_quick(tmp_path, opened):
    path = tmp_path / "page.html"
    made = subprocess.run([GENERATOR, path, "200000"], capture_output=True, text=True, check=True, timeout=300)
    assert made.stdout == "200000 tensors\n"
    size = path.stat().st_size
    view = opened(path)
    paint = view.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    drawn = view.page.evaluate("performance.getEntriesByName('ttrace-drawn')[0].startTime")
    print(f"{size / 1e6:.2f} MB, first paint after {paint:.0f} ms, all drawn after {drawn:.0f} ms")
    assert size <= 5_000_000
    assert view.text("#listed") == "133,334 tensors, page 1 of 2,667"
    view.page.locator("#verdict").select_option("all")
    assert view.text("#listed") == "200,000 tensors, page 1 of 4,000"
    view.page.get_by_role("button", name="Last").click()
    assert view.text("#listed") == "200,000 tensors, page 4,000 of 4,000"
    assert paint < 10_000  # a machine that does nothing else takes a small part of this
