"""The wrong programs, and the cause of each as a person would write it down: causes.txt."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from programs.table import Program, is_named, programs

HERE = Path(__file__).resolve().parent
TABLE = HERE / "causes.txt"
COLLECTION = HERE / "collection"
# How the programs of the collection are run: ranks, and the options of a check that only their author knows.
_RUN_AS = {
    "trainer": (2, ""),
    "shards": (2, "--axes tp=2"),
    "experts": (4, f"--axes ep=2,dp=2 -a {COLLECTION / 'experts.yaml'}"),
}


@dataclass(frozen=True)
class Wrong:
    """A wrong program."""

    program: Program
    where: str  # it shows first, by hand: globs for a tensor's name and its kind
    cause: str  # as a person would write it down
    words: str  # that a cause must say: all of those that commas part, one of those that slashes part

    @property
    def name(self) -> str:
        return self.program.name

    def shows_in(self, tensor: str) -> bool:
        patterns = [pattern.strip().replace("[", "[[]") for pattern in self.where.split(",")]
        return any(fnmatchcase(tensor, pattern) for pattern in patterns)

    def is_named_by(self, sentence: str) -> bool:
        return is_named(self.words, sentence)


def wrong_programs(table: str | None = None) -> list[Wrong]:
    """In the order of the table. Raises ValueError, which names the line that says no program."""
    known = {program.name: program for program in programs()}
    found = []
    for number, line in enumerate((TABLE.read_text() if table is None else table).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split(" | ")]
        if len(cells) != 4:
            raise ValueError(f"causes.txt, line {number}: expected four cells")
        told, where, cause, words = cells
        stem, _, mistake = told.partition(" ")
        if told in known:
            program = known[told]
        elif stem in _RUN_AS and mistake:
            program = _of_collection(stem, mistake, known["sampler"])
        else:
            raise ValueError(f"causes.txt, line {number}: no program {told}")
        found.append(Wrong(program, where, cause, words))
    return found


def _of_collection(stem: str, mistake: str, like: Program) -> Program:
    ranks, hint = _RUN_AS[stem]
    return replace(
        like,
        name=f"{stem}-{mistake}",
        path=COLLECTION / f"{stem}.py",
        mistake_name=mistake,
        parallel=f"{ranks} ranks",
        hint=hint,
        iterations="0-1" if stem == "trainer" else "",
    )
