"""The papers' claims one by one, of claims.yaml: what ttrace has of each, and where it shows."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from citations import ROOT, flat

from evaluations.markdown import table

HERE = Path(__file__).resolve().parent
TABLE = HERE / "claims.yaml"
STATES = {"yes": "as the paper", "partly": "partly", "no": "not here"}


@dataclass(frozen=True)
class Claim:
    paper: str
    at: str  # its section, table or figure
    says: str
    state: str  # of STATES
    here: str  # partly: the number and the difference; no: the reason
    shows: str  # a command, a page or a test
    cites: dict[str, list[str]]  # by page, what must be on it


def read(path: Path = TABLE) -> list[Claim]:
    claims = []
    for paper, rows in yaml.safe_load(path.read_text()).items():
        claims += [Claim(paper=paper, **{"cites": {}, **row}) for row in rows]
    return claims


def problems(claims: list[Claim]) -> Iterator[str]:
    """What each claim lacks: a reason, a number, a page that shows it."""
    for claim in claims:
        where = f"{claim.paper}, {claim.at}"
        if claim.state not in STATES:
            yield f"{where}: '{claim.state}' is no state"
        if not claim.here.strip():
            yield f"{where}: it is not said what is here"
        if claim.state == "partly" and not re.search(r"\d", claim.here):
            yield f"{where}: partly, without a number"
        if claim.state != "no" and not claim.shows.strip():
            yield f"{where}: nothing shows it"
        for page in [*claim.cites, *re.findall(r"\b(?:tests|tools|src)/[\w./-]+", claim.shows)]:
            if not (ROOT / page).exists():
                yield f"{where}: there is no {page}"


def gone(claims: list[Claim] | None = None) -> list[str]:
    """What is wrong with claims.yaml, and each text that a claim cites and its page no longer has."""
    claims = read() if claims is None else claims
    found = list(problems(claims))
    for claim in claims:
        for page, texts in claim.cites.items():
            if (ROOT / page).exists():
                on_page = flat((ROOT / page).read_text())
                found += [f"{claim.paper}, {claim.at}: {page}: {text}" for text in texts if flat(text) not in on_page]
    return found


def render(claims: list[Claim] | None = None) -> list[str]:
    claims = read() if claims is None else claims
    states = Counter(claim.state for claim in claims)
    lines = [
        "# The papers, claim by claim",
        "",
        "Made by `tools/papers claims` of [claims.yaml](claims.yaml): what the five papers behind `check`, `abft` "
        "and `sdc` claim, and what there is of it. *As the paper*: the same result, or the same to within sampling. "
        "*Partly*: with the number that is here, and how it differs. *Not here*: with the reason. Numbers that a row "
        "cites are on the page that it names, or this page is not made.",
        "",
        f"{len(claims)} claims: {states['yes']} as the paper, {states['partly']} partly, {states['no']} not here.",
    ]
    for paper in dict.fromkeys(claim.paper for claim in claims):
        rows = [
            [claim.at, one_line(claim.says), STATES[claim.state], one_line(claim.here), one_line(claim.shows)]
            for claim in claims
            if claim.paper == paper
        ]
        lines += ["", f"## {paper}", "", *table(["where", "the paper", "state", "here", "shown by"], rows)]
    return lines


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
