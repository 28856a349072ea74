"""Opens reports in headless Chromium: Debian's, driven by Playwright. There is no network, and nothing asks for it."""

import csv
import json
import os
import pathlib
import shutil
import sys

import pytest
from playwright.sync_api import sync_playwright

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "cli"), str(TESTS / "verdict")]  # program, traces; forged

from program import Program  # noqa: E402 (found by the path just set)

GENERATOR = pathlib.Path(os.environ["TTRACE_BUILD"]) / "tests" / "large_page"
DESK = (1280, 900)


class Opened:
    """A page in a tab of the browser, and what it should not have done."""

    def __init__(self, tab, path, scheme="light", screen=DESK):
        self.page, self.requests, self.problems = tab, [], []
        self.width, height = screen
        self.listeners = {
            "request": lambda request: self.requests.append(request.url),
            "pageerror": lambda error: self.problems.append(str(error)),
            "console": lambda message: self.problems.append(f"{message.type}: {message.text}"),
        }
        self.page.goto("about:blank")  # nothing is left of the page before
        self.page.set_viewport_size({"width": self.width, "height": height})
        self.page.emulate_media(color_scheme=scheme)
        for event, listener in self.listeners.items():
            self.page.on(event, listener)
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("main[aria-busy=false]")

    def leave(self):
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def open_tensor(self, row):
        self.page.evaluate(f"location.hash = 'tensor/{row}'")
        self.page.wait_for_selector("article.tensor h1")

    def details(self, title):
        """Opens what is folded, and waits for what it makes."""
        for summary in self.page.locator("summary", has_text=title).all():
            if summary.is_visible() and not summary.evaluate("e => e.parentElement.open"):
                summary.click()
                made = "e => e.parentElement.open && e.parentElement.childElementCount > 1"
                self.page.wait_for_function(made, arg=summary.element_handle())

    def table(self, selector):
        """The texts of a table's cells, row by row, its head first."""
        return self.page.locator(selector).first.evaluate(
            "t => [...t.rows].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
        )

    def assert_clean(self):
        local = [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
        assert not local and not self.problems
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width


@pytest.fixture(scope="session")
def tab():
    """One for all tests: a new one costs three times what a page does that is opened in it."""
    executable = shutil.which("chromium")
    assert executable, "no chromium: tools/setup tests installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        tab = browser.new_context(offline=True, reduced_motion="reduce").new_page()
        tab.set_default_timeout(120_000)  # ms; for machines that do much else
        yield tab
        browser.close()


@pytest.fixture
def opened(tab):
    """Opens the page of a test; at its end it must not have complained, nor asked the network."""
    pages = []

    def open_page(path, scheme="light", screen=DESK):
        assert not pages, "a test opens one page"
        pages.append(Opened(tab, path, scheme, screen))
        return pages[0]

    yield open_page
    for page in pages:
        page.leave()
        page.assert_clean()


@pytest.fixture
def ttrace(tmp_path):
    return Program(tmp_path)


def read_csv(path):
    csv.field_size_limit(1 << 24)
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_json(path):
    return json.loads(path.read_text())
