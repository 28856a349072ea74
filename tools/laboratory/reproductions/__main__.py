"""Runs build/reproductions/reproduce for each paper, prints its tables, and writes them on the page."""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from freshness import commit, machine, sentence

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parents[2] / "build" / "reproductions" / "reproduce"
PAGE = HERE / "RESULTS.md"

# What the program calls each paper, and its section of the page.
TITLES = {"v-abft": "V-ABFT", "dlrm": "DLRM", "attnchecker": "ATTNChecker", "sdc-llm": "SDC study"}


def tables(paper: str) -> str:
    started = time.monotonic()
    printed = subprocess.run([PROGRAM, paper], stdout=subprocess.PIPE, text=True, check=True).stdout
    seconds = time.monotonic() - started
    return f"{printed.strip()}\n\n{sentence(f'tools/reproduce {paper}', seconds, [commit()], machine())}"


def with_section(page: str, title: str, text: str) -> str:
    """The page with this text in the section of this title, which it has."""
    return re.sub(rf"(?<=^## {re.escape(title)}\n\n).*?(?=\n\n## |\n\Z)", lambda _: text, page, flags=re.M | re.S)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/reproduce",
        description="Measures the tables of papers that checks without a reference come from, prints them beside the "
        "papers' own numbers, and writes them on the page tools/laboratory/reproductions/RESULTS.md.",
        epilog="Example: tools/reproduce v-abft dlrm",
    )
    parser.add_argument("paper", nargs="*", metavar="PAPER", help=f"{', '.join(TITLES)}; all of them without one")
    papers = parser.parse_args().paper or list(TITLES)
    if unknown := [paper for paper in papers if paper not in TITLES]:
        parser.error(f"'{unknown[0]}' is no paper; expected {', '.join(TITLES)}")
    for paper in papers:
        text = tables(paper)
        print(text, end="\n\n", flush=True)
        PAGE.write_text(with_section(PAGE.read_text(), TITLES[paper], text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
