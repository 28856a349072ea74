"""What the first screen answers, on a phone, a tablet and a desk: is it wrong, where first, why, and what next.

TTRACE_SCREENSHOTS names a folder for the pictures, to look at."""

import os
import pathlib
import subprocess

import pytest
from conftest import GENERATOR

SCREENS = {"phone": (390, 844), "tablet": (768, 1024), "desk": (1280, 800)}
SIZES = (5, 500, 20_000)
ANSWERS = {
    "is it wrong": "h1",
    "how much of it": ".counts p",
    "where first": ".root-card .name",
    "why": ".root-card .sentence",
    "in which line": ".root-card .source",
    "what next": "#next .copy",
}
LEAST_CELL = {"phone": 14, "tablet": 9, "desk": 9}  # pixels


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pages")
    for size in SIZES:
        subprocess.run([GENERATOR, directory / f"{size}.html", str(size)], check=True, timeout=300)
    return directory


def take_screenshot(view, name, tmp_path):
    """The picture's bytes."""
    folder = pathlib.Path(os.environ.get("TTRACE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return view.page.screenshot(path=folder / f"{name}.png")


def is_inside(box, screen):
    width, height = screen
    return box["x"] >= 0 and box["y"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= height


def overlapping(view):
    """Pairs of headings and paragraphs that lie on each other."""
    return view.page.evaluate(
        """() => {
          const texts = [...document.querySelectorAll("h1, h2, h3, main p, summary, .copy")]
            .filter((element) => element.checkVisibility() && element.getClientRects().length);
          const pairs = [];
          for (const a of texts) for (const b of texts) {
            if (a === b || a.contains(b) || b.contains(a)) continue;
            const [p, q] = [a.getBoundingClientRect(), b.getBoundingClientRect()];
            const apart = p.right <= q.left || q.right <= p.left || p.bottom <= q.top || q.bottom <= p.top;
            if (!apart) pairs.push([a.innerText, b.innerText]);
          }
          return pairs;
        }"""
    )


def colour_under(view, box):
    """What the heat map has drawn in the middle of a box of the page."""
    return view.page.evaluate(
        """([x, y]) => {
          const canvas = document.querySelector(".heat canvas");
          const place = canvas.getBoundingClientRect();
          const scale = canvas.width / place.width;
          const at = [Math.round((x - place.left) * scale), Math.round((y - place.top) * scale)];
          const pixel = new OffscreenCanvas(1, 1).getContext("2d");  // the page's own is read once without a warning
          pixel.drawImage(canvas, ...at, 1, 1, 0, 0, 1, 1);
          return [...pixel.getImageData(0, 0, 1, 1).data];
        }""",
        [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2],
    )


@pytest.mark.parametrize("device", SCREENS)
@pytest.mark.parametrize("size", SIZES)
def test_the_first_screen_answers_what_people_ask(pages, opened, tmp_path, size, device):
    screen = SCREENS[device]
    view = opened(pages / f"{size}.html", "light", screen)
    pictures = {}
    for scheme in ("light", "dark"):
        view.page.emulate_media(color_scheme=scheme)  # as a system does in the evening
        pictures[scheme] = take_screenshot(view, f"{size}-{device}-{scheme}", tmp_path)
        assert len(pictures[scheme]) > 10_000
        for what, selector in ANSWERS.items():
            assert is_inside(view.page.locator(selector).first.bounding_box(), screen), what
        assert len(view.text("h1")) < 100
        assert view.page.evaluate("document.body.innerText").count(view.text(".root-card .sentence")) == 1
        assert view.page.locator("#compared details:not([open])").count() == 1
        assert not overlapping(view)

        view.page.evaluate("document.querySelector('.heat').focus({preventScroll: true})")
        root = view.page.locator(".heat .cursor").bounding_box()
        assert root["width"] >= LEAST_CELL[device]
        assert root["x"] >= 0 and root["x"] + root["width"] <= screen[0]  # also where the map is wider, and scrolls
        if device != "phone":
            assert is_inside(root, screen)
        red, green, blue, opacity = colour_under(view, root)
        assert opacity == 255 and red > green > blue
        view.page.evaluate("document.activeElement.blur()")
    assert pictures["light"] != pictures["dark"]
