"""What a trace says is data: it is shown, and never run."""

import subprocess

import numpy
import pytest
from conftest import GENERATOR, read_json

from traces import Tensor, record_run

HOSTILE = {
    "the end of the script": "</script><script>window.ran = 1</script>",
    "an image": "<img src=x onerror='window.ran = 1'>",
    "an attribute": "\"' onmouseover='window.ran = 1' x=\"",
    "a place of the template": "{{data}}{{sentence}}",
    "control characters": "a\x1b[31mb\x07c",
    "another direction of writing": "abc\u202egnp.exe",
    "what takes no room": "a\u200bb\u3164c\U000e0041d",
    "beyond ASCII": "caf\u00e9 \u2028 \U0001f600",
}

SHOWN = {
    "control characters": r"a\x1b[31mb\x07c",
    "another direction of writing": r"abc\xe2\x80\xaegnp.exe",
    "what takes no room": r"a\xe2\x80\x8bb\xe3\x85\xa4c\xf3\xa0\x81\x81d",
    "beyond ASCII": "caf\u00e9 ",
}


def check(ttrace, name, wrong=True):
    values = numpy.arange(1, 33, dtype="float32").reshape(4, 8)
    record_run(ttrace.directory / "reference", [[Tensor(name, values)]])
    record_run(ttrace.directory / "candidate", [[Tensor(name, values * (2 if wrong else 1))]])
    files = ("--html", "page.html", "--json", "report.json")
    ttrace("check", "--reference", "reference", "--candidate", "candidate", *files, code=1)
    return ttrace.directory


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_name_is_shown_as_text(ttrace, opened, what):
    name = HOSTILE[what]
    directory = check(ttrace, name)
    assert read_json(directory / "report.json")["root_cause"]["name"] == name
    view = opened(directory / "page.html")
    for _ in range(2):  # the overview, then the tensor's page
        shown = view.page.evaluate("document.body.innerText")
        assert SHOWN.get(what, name) in shown
        assert not any(hidden in shown for hidden in "\x1b\x07\u202e\u200b\u3164\U000e0041")
        assert view.page.evaluate("window.ran") is None
        assert view.page.locator("img").count() == 0
        view.open_tensor(0)
    view.page.mouse.move(300, 60)
    assert view.page.evaluate("window.ran") is None


@pytest.mark.parametrize("size", [4000, 1 << 20])
def test_a_long_name_fits_on_a_page(tmp_path, opened, size):
    # The collector stops at 4096 bytes; other recorders need not.
    subprocess.run([GENERATOR, tmp_path / "page.html", "1", str(size)], check=True, timeout=60)
    view = opened(tmp_path / "page.html")
    assert len(view.text("h1")) < 110
    assert f"({size:,} characters)" in view.text("#tensors table")
    view.open_tensor(0)
    assert len(view.text("article.tensor h1")) < 1100
    view.details("The whole name")
    assert view.page.locator(".whole-name").text_content() == "layers.0." + "n" * (size - 9)
