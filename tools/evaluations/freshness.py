"""Which sections of the evidence are older than the code that they measure, by git: a section names the commit that it
was measured at, or else counts as measured when it was published."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_READING = ["src/identify", "src/align", "src/merge", "src/files", "src/load"]
_VERDICT = [*_READING, "src/compare", "src/tolerance", "src/judge"]
_PROGRAMS = ["src/python", "tools/tinygpt", "tools/sweeps"]
_DIAGNOSES = ["src/diagnose"]
_ALONE = ["src/selfcheck", "src/abft"]


def _of(module: str) -> str:
    return f"tools/evaluations/{module}.py"


# Page, title of the section ("": the whole page): what it measures. Paths are of this repository.
MEASURED: dict[str, dict[str, list[str]]] = {
    "tools/evaluations/RESULTS.md": {
        "Bugs": [*_VERDICT, *_PROGRAMS, *_DIAGNOSES, *_ALONE, _of("corpus"), _of("bugs"), _of("detection")],
        "Damages drawn at random": [
            *_VERDICT,
            *_PROGRAMS,
            "tools/torchgpt",
            *_DIAGNOSES,
            _of("damages"),
            _of("damaged"),
        ],
        "Localisation": [*_VERDICT, *_PROGRAMS, *_DIAGNOSES, _of("corpus"), _of("localization")],
        "False alarms": [*_VERDICT, *_PROGRAMS, "tools/torchgpt", _of("false_alarms")],
        "Mutants: what must not be called the same": [
            *_VERDICT,
            *_PROGRAMS,
            "src/step",
            "src/report",
            _of("mutants"),
            _of("mutations"),
            _of("faulty_step"),
        ],
        "Mutants of real frameworks' runs": [
            *_VERDICT,
            "src/python",
            "src/step",
            "src/report",
            "tools/frameworks",
            _of("mutants"),
            _of("mutations"),
            _of("framework_mutants"),
        ],
        "Steps of unknown optimizers": [*_VERDICT, *_PROGRAMS, "src/step", _of("unknown_steps"), _of("unknown_step")],
        "Sketches": [
            *_VERDICT,
            *_PROGRAMS,
            "src/sketch",
            "tools/frameworks/megatron",
            _of("corpus"),
            _of("sketches"),
            _of("sketched_runs"),
            _of("sketched_megatron"),
        ],
        "Fixed rules beside measured tolerances": [*_VERDICT, *_PROGRAMS, _of("rules"), _of("peers"), _of("corpus")],
        "How rounding grows with depth": ["src/tolerance", "src/compare", *_PROGRAMS, _of("depth")],
        "Errors of bugs beside errors of rounding": ["src/tolerance", "src/compare", *_PROGRAMS, _of("bug_errors")],
        "Sensitivity": [*_VERDICT, *_PROGRAMS, _of("sensitivity")],
        "Cost": [*_VERDICT, *_PROGRAMS, "src/record", _of("cost")],
    },
    "tools/sweeps/RESULTS.md": {"": [*_VERDICT, *_PROGRAMS, "tools/torchgpt"]},
    "tools/reproductions/RESULTS.md": {
        "V-ABFT": ["src/abft", "tools/reproductions/v_abft_tightness.cpp", "tools/reproductions/v_abft_detection.cpp"],
        "DLRM": ["src/abft", "tools/reproductions/dlrm.cpp"],
        "ATTNChecker": ["src/abft", "src/selfcheck", "tools/reproductions/attnchecker.cpp"],
        "SDC study": ["src/abft", "src/sdc", "tools/reproductions/sdc_llm.cpp"],
    },
    "tools/frameworks/RESULTS.md": {"": [*_VERDICT, "src/python", "tools/frameworks"]},
}


@dataclass
class Section:
    page: str
    title: str
    commit: str | None  # None: it is not committed yet
    is_measured: bool  # the section names the commit; else it was published with it
    changed: list[str]  # commits since then that touched what it measures, newest first

    def __str__(self) -> str:
        name = f"{self.page}: {self.title}" if self.title else self.page
        if self.commit is None:
            return f"{name}: not committed"
        when = f"{'measured at' if self.is_measured else 'published with'} {self.commit}"
        if not self.changed:
            return f"up to date  {name}: {when}"
        return f"older       {name}: {when}; {len(self.changed)} later commits, the last: {self.changed[0]}"


def sections() -> list[Section]:
    return [_section(page, title, paths) for page, titles in MEASURED.items() for title, paths in titles.items()]


def _section(page: str, title: str, paths: list[str]) -> Section:
    lines = (ROOT / page).read_text().splitlines()
    first, last = lines_of(lines, title)
    text = "\n".join(lines[first:last])
    named = re.findall(r"at commit ([0-9a-f]{7,40})", text)
    # Older sections name the commit that published them.
    known = named or re.findall(r"before commit ([0-9a-f]{7,40})", text)
    commit = known[-1] if known else _published(page, first, last)
    if commit is None:
        return Section(page, title, None, False, [])
    excluded = [f":(exclude){path}" for path in MEASURED]  # the pages themselves
    changed = _git("log", "--format=%h %s", f"{commit}..HEAD", "--", *paths, *excluded).splitlines()
    return Section(page, title, commit, bool(named), changed)


def lines_of(lines: list[str], title: str) -> tuple[int, int]:
    """Begin and end of the section; of those whose titles begin so, the first to the last. "": of all. (0, 0) where the
    page has none."""
    if not title:
        return 0, len(lines)
    heads = [i for i, line in enumerate(lines) if re.match("##+ ", line)] + [len(lines)]
    own = [i for i, at in enumerate(heads[:-1]) if lines[at].lstrip("# ").startswith(title)]
    if not own:
        return 0, 0
    level = lines[heads[own[0]]].count("#", 0, 4)
    last = own[-1] + 1
    while heads[last] < len(lines) and lines[heads[last]].startswith("#" * (level + 1)):
        last += 1
    return heads[own[0]], heads[last]


def _published(page: str, first: int, last: int) -> str | None:
    """The commit that changed one of these lines last."""
    if first == last:
        return None
    blamed = _git("blame", "--porcelain", f"-L{first + 1},{last}", "HEAD", "--", page)
    times: dict[str, int] = {}
    commit = ""
    for line in blamed.splitlines():
        if re.match(r"[0-9a-f]{40} \d+ \d+", line):
            commit = line.split()[0]
        elif line.startswith("committer-time "):
            times[commit] = int(line.split()[1])
    return max(times, key=lambda of: times[of])[:10] if times else None


def _git(*words: str) -> str:
    result = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else ""
