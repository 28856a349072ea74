"""Numbers in prose that come from a page of evidence: each sentence, and where the page says the same.

A number is `{name}` in both texts, and must be the same one. A test holds prose to pages: a page that is made again
with another number makes the sentence wrong."""

import re
from dataclasses import dataclass

from evidence import ROOT


@dataclass(frozen=True)
class Citation:
    prose: str  # a file
    says: str
    page: str
    shows: str


_ABFT, _LIMITS, _TOLERANCES = (f"src/manual/{name}.md" for name in ("abft", "limits", "estimate-tolerance"))
_EVALUATIONS = "tools/laboratory/evaluations"
_REPRODUCTIONS = "tools/laboratory/reproductions/RESULTS.md"

CITATIONS = [
    Citation(
        _LIMITS,
        "Of {runs} correct runs with seeds of their own",
        f"{_EVALUATIONS}/RESULTS.md",
        "{runs} correct runs, 0 with a false alarm.",
    ),
    Citation(
        _TOLERANCES,
        "programs drawn at random: {runs} correct runs of {models} models, {distinct} of them distinct, none called",
        f"{_EVALUATIONS}/DRAWN.md",
        "{runs} configurations of {models} models, with {distinct} distinct outcomes",
    ),
    Citation(
        _ABFT,
        "takes {least} to {most} % of the time of multiplying again ({low} to {high} % for matrices of 1024",
        _REPRODUCTIONS,
        "| overhead | 5.6 % | 6.8 % | {low} % | {high} % | 1.8 % | 2.0 % | {least} % | {most} % |",
    ),
    Citation(_TOLERANCES, "and {mutants} mutants both", f"{_EVALUATIONS}/ANCHOR.md", "| perturbed | {mutants} |"),
]


def flat(text: str) -> str:
    """On one line, with a space between words and none that pads a table."""
    return " ".join(text.split())


def stale(citations: list[Citation] = CITATIONS) -> list[str]:
    """Each sentence that its file no longer has, or whose numbers are not the page's."""
    found = []
    for citation in citations:
        said = _numbers(citation.says, (ROOT / citation.prose).read_text())
        shown = _numbers(citation.shows, (ROOT / citation.page).read_text())
        if said is None:
            found.append(f"{citation.prose} no longer says: {citation.says}")
        elif shown is None:
            found.append(f"{citation.page} no longer says: {citation.shows}")
        else:
            found += [
                f"{citation.prose} says {name} {said[name]}, and {citation.page} {number}"
                for name, number in shown.items()
                if said.get(name) != number
            ]
    return found


def _numbers(pattern: str, text: str) -> dict[str, str] | None:
    words = re.split(r"\{(\w+)\}", flat(pattern))
    words[::2] = map(re.escape, words[::2])
    words[1::2] = [rf"(?P<{name}>[\d.,]*\d)" for name in words[1::2]]
    match = re.search("".join(words), flat(text))
    return match.groupdict() if match else None
