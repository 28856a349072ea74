"""What is hunted: pairs of programs, from lines of a table."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


@dataclass(frozen=True)
class Hunt:
    """A program that one process runs as the reference, and others, or as many ranks as said, with more arguments."""

    program: Path  # from ROOT
    iterations: str  # to record
    arguments: str
    candidates: tuple[tuple[int, str], ...]  # ranks and further arguments

    @property
    def name(self) -> str:
        """Of its reference, to be read."""
        program = self.program.parent.name if self.program.name == "program.py" else self.program.stem
        return " ".join([program, *self.arguments.split()])

    @property
    def directory(self) -> str:
        return "-".join(self.name.replace("--", "").replace("/", "-").split())

    @staticmethod
    def candidate_name(ranks: int, arguments: str) -> str:
        return "-".join([str(ranks), *arguments.replace("--", "").split()])


def hunts(text: str) -> list[Hunt]:
    """Of a table. Lines with the same reference are one hunt. Raises ValueError, which names the line."""
    found: dict[tuple[Path, str, str], list[tuple[int, str]]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 5 or not cells[3].isdecimal():
            raise ValueError(f"line {number}: expected program | iterations | arguments | ranks | those of candidates")
        program, iterations, arguments, ranks, candidates = cells
        path = HERE / "programs" / program
        path = path if path.exists() else ROOT / program
        if not path.exists():
            raise ValueError(f"line {number}: no program {program}")
        key = (path.relative_to(ROOT), iterations, " ".join(arguments.split()))
        found.setdefault(key, []).extend((int(ranks), candidate.strip()) for candidate in candidates.split(","))
    return [Hunt(*reference, tuple(candidates)) for reference, candidates in found.items()]
