"""When evidence was measured, at which commit, in how long, and which commits have changed since what it measures.

Each page says so itself, once for each command that wrote a part of it:

    Measured by `tools/sweep` in 1020 s, at commit 25727a4150: 2 cores, x86_64.

What was measured before its page said so names the commit that published it:

    Published by `tools/sweep`, with commit 5d822c17e6."""

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from evidence import PUBLISHED, ROOT, Evidence

_NOTHING_ELSE = [f":(exclude,top){path}" for path in PUBLISHED]


@dataclass(frozen=True)
class Measurement:
    commits: list[str]  # of a page whose parts were measured one by one, all of them
    seconds: int | None  # None: the page does not say


def commit() -> str:
    """The commit that is measured, and whether the tree differs from it, but for the evidence itself."""
    is_changed = _git("status", "--porcelain", "--", ":/", *_NOTHING_ELSE) != ""
    return _git("rev-parse", "--short=10", "HEAD") + (", changed" if is_changed else "")


def sentence(command: str, seconds: float | None, commits: Iterable[str], machine: str) -> str:
    """What a page says of the command that wrote it. `seconds` None: nobody wrote down when it was measured."""
    if seconds is None:
        return f"Published by `{command}`, with commit {', '.join(commits)}."
    return f"Measured by `{command}` in {seconds:.0f} s, at commit {', '.join(commits)}: {machine}."


def machine(*software: str) -> str:
    """What measures: this machine, and what of its software matters."""
    return ", ".join([f"{os.cpu_count()} cores", platform.machine(), *software])


def measurement_of(evidence: Evidence) -> Measurement | None:
    """What the page says; None where it has no such part yet."""
    page = ROOT / evidence.page
    return measurement_in(page.read_text() if page.exists() else "", evidence.command)


def measurement_in(page: str, command: str) -> Measurement | None:
    said = rf"^(?:Measured|Published) by {re.escape(f'`{command}`')}(?: in (\d+) s)?, (?:at|with) commit ([^:.\n]+)"
    found = re.search(said, page, re.M)
    if not found:
        return None
    seconds, commits = found.groups()
    return Measurement(re.findall(r"\b[0-9a-f]{7,40}\b", commits), int(seconds) if seconds else None)


def later_commits(measurement: Measurement, sources: Iterable[str]) -> int | None:
    """Counts those since the oldest commit of the measurement that touched one of the sources. None where the history
    has no such commit."""
    paths = ["--", *sources, *_NOTHING_ELSE]
    try:
        return max(int(_git("rev-list", "--count", f"{each}..HEAD", *paths)) for each in measurement.commits)
    except subprocess.CalledProcessError:
        return None


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
