"""Which source was measured."""

import subprocess
from pathlib import Path

_PAGES = (":(exclude,top,glob)**/RESULTS.md", ":(exclude,top)tools/evaluations/figures")


def commit() -> str:
    """The commit that is measured, and whether the tree differs from it, but for the pages of evidence themselves."""

    def git(*words: str) -> str:
        here = Path(__file__).resolve().parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    is_changed = git("status", "--porcelain", "--", ":/", *_PAGES) != ""
    return git("rev-parse", "--short=10", "HEAD") + (", changed" if is_changed else "")
