"""Follows the tutorial to the letter, in an empty folder."""

import re

from pages import MANUAL, blocks, follow

TUTORIAL = MANUAL / "tutorial.md"


def rounded(text):
    """The text with numbers as another machine may print them: three digits, and none of a rounding error."""
    text = re.sub(r"\d+(\.\d+)?e-\d+", "#", text)
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.3g}", text)


def test_the_tutorial_can_be_followed(tmp_path):
    (program,) = blocks(TUTORIAL, "python")
    (tmp_path / "train.py").write_text(program)
    follow(TUTORIAL, tmp_path, {"OMP_NUM_THREADS": "1"}, timeout=300, as_compared=rounded)
    assert (tmp_path / "page.html").stat().st_size > 100_000
