"""The programs, and what is to be expected of ttrace: what their own texts say."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
COLLECTION = HERE / "collection"
KINDS = ROOT / "tests" / "programs" / "kinds"  # what the tests run: idioms of no package
KINDS_TABLE = HERE / "kinds.txt"
OUTSIDE = HERE / "outside"  # mistakes that show elsewhere than in the parameters of a first step
OUTSIDE_TABLE = HERE / "outside.txt"
PUBLIC = HERE / "public"  # silent bugs that others reported, in the real packages
PUBLIC_TABLE = HERE / "public.txt"
_LIGHTLY = 2  # further iterations, as `ttrace run` records
_HELPERS = ("before_torchvision", "gpt_model", "llama_model", "scaled_blocks")  # modules that programs import
_SAID = ("package", "parallel", "mistake", "shows")
_MAY_BE_SAID = ("hint", "iterations", "asks")
_OF_PUBLIC = ("report", "package", "parallel", "mistake", "shows", "words")
# What a sentence says of when, whatever the cause is.
_TIMES = re.compile(r"(, micro-batch \d+)?(, iteration \d+)?(?=: )|; the same in \d+ more micro-batch[^;.]*")


@dataclass(frozen=True)
class Program:
    name: str
    path: Path
    arguments: tuple[str, ...]
    package: str
    idiom: str  # a sentence
    parallel: str  # "DDP, 2 ranks"
    mistake: str  # what the wrong twin does
    mistake_name: str  # as the program is told, by MISTAKE in the environment
    shows: tuple[str, ...]  # where that shows first: globs for a tensor's name and its kind
    hint: str  # the options of a check that only an author knows; empty: none
    iterations: str  # to record; empty: ttrace's choice
    then: int  # further ones to record lightly
    asks: str  # where a correct program cannot be compared: what the question about it must say
    venv: str = ".venv-programs"  # whose packages it needs
    report: str = ""  # the thread in which somebody reported the mistake, and whether it is mended
    words: str = ""  # that a cause must say, as `is_named` takes them
    read: str = ""  # what a person who read the cause called it

    @property
    def correct_name(self) -> str:
        """What it is called without its mistake, which programs of outside.txt share."""
        return self.name.removesuffix(f"-{self.mistake_name}") if self.is_outside else self.name

    @property
    def is_outside(self) -> bool:
        return self.path.parent == OUTSIDE

    @property
    def is_public(self) -> bool:
        return self.path.parent == PUBLIC

    @property
    def ranks(self) -> int:
        """Processes; JAX's devices are one's."""
        return int(said[1]) if (said := re.search(r"(\d+) ranks", self.parallel)) else 1

    @property
    def devices(self) -> int:
        return int(said[1]) if (said := re.search(r"(\d+) devices", self.parallel)) else 1

    def shows_in(self, tensor: str) -> bool:
        """`tensor` is a name and a kind, as in `fc.weight main_grad`."""
        return any(fnmatchcase(tensor, pattern) for pattern in self.shows)


def programs() -> list[Program]:
    """By name, those of packages first. Raises ValueError, which names what does not say all that it must."""
    files = [path for path in sorted(COLLECTION.glob("*.py")) if path.stem not in _HELPERS]
    found = [of_file(path) for path in files]
    found += kinds(KINDS_TABLE.read_text())
    found += outside(OUTSIDE_TABLE.read_text())
    found += public(PUBLIC_TABLE.read_text())
    names = [program.name for program in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two programs have the name {', '.join(sorted(twice))}")
    return found


def kinds(table: str) -> list[Program]:
    """Of a table of kinds.txt."""
    found = []
    for where, cells in _cells("kinds.txt", table):
        path, arguments, said = _told(where, KINDS, cells)
        found.append(_of_table("-".join([path.stem, *arguments]), path, arguments, said, said["mistake"]))
    return found


def outside(table: str) -> list[Program]:
    """Of a table of outside.txt, where a mistake is a name and what it does: `name: words`."""
    found = []
    for where, cells in _cells("outside.txt", table):
        path, arguments, said = _told(where, OUTSIDE, cells)
        mistake_name, _, said["mistake"] = said["mistake"].partition(": ")
        name = "outside/" + "-".join([path.stem, *arguments, mistake_name])
        found.append(replace(_of_table(name, path, arguments, said, mistake_name), then=_LIGHTLY))
    return found


def public(table: str) -> list[Program]:
    """Of a table of public.txt; what a program's text says beside its sentence is its `venv`, and what else may be."""
    found, read = [], dict(re.findall(r"^# read: (\w+): (half|wrong)\b", table, re.M))
    for where, (stem, *cells) in _cells("public.txt", table, 1 + len(_OF_PUBLIC)):
        path, said = PUBLIC / f"{stem}.py", dict(zip(_OF_PUBLIC, cells, strict=True))
        if not path.exists():
            raise ValueError(f"{where}: no program {path.relative_to(ROOT)}")
        text = _text_of(path)
        more = _told_by(text) if "\n\n" in text else {}
        venv = more.pop("venv", ".venv-programs")
        if unknown := set(more) - set(_MAY_BE_SAID):
            raise ValueError(f"{path.relative_to(ROOT)}: its text says what nobody reads: {', '.join(sorted(unknown))}")
        program = _program(f"public/{stem}", path, _sentence(text), said | more, "wrong", [])
        program = replace(program, venv=venv, report=said["report"], words=said["words"])
        found.append(replace(program, read=read.get(stem, "")))
    return found


def is_named(words: str, sentence: str) -> bool:
    """Whether a sentence says all of the words that commas part, and of those that slashes part one."""
    said = _TIMES.sub("", sentence)

    def is_said(word: str) -> bool:  # from where a word begins: `own`, and not `known`
        return re.search(rf"(?<![a-z0-9.]){re.escape(word.strip())}", said, re.IGNORECASE) is not None

    return all(any(map(is_said, one.split("/"))) for one in words.split(","))


def _cells(file: str, table: str, count: int = 5) -> Iterator[tuple[str, list[str]]]:
    """Of lines as `program arguments | parallel | mistake | where it shows | hint or asks: words`, and where."""
    for number, line in enumerate(table.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where, cells = f"{file}, line {number}", [cell.strip() for cell in line.split("|")]
        if len(cells) != count:
            raise ValueError(f"{where}: expected {count} cells")
        yield where, cells


def _told(where: str, folder: Path, cells: list[str]) -> tuple[Path, list[str], dict]:
    """The program of a line, its arguments, and what the line says of it."""
    told, parallel, mistake, shows, further = cells
    stem, *arguments = told.split()
    path = folder / f"{stem}.py"
    if not path.exists():
        raise ValueError(f"{where}: no program {path.relative_to(ROOT)}")
    said = {"package": "PyTorch", "parallel": parallel, "mistake": mistake, "shows": shows}
    if further:
        key, _, words = further.partition(": ")
        if key not in _MAY_BE_SAID or not words:
            raise ValueError(f"{where}: expected one of {', '.join(_MAY_BE_SAID)}, and words")
        said[key] = words
    return path, arguments, said


def _of_table(name: str, path: Path, arguments: list[str], said: dict, mistake_name: str) -> Program:
    return _program(name, path, _sentence(_text_of(path)), said, mistake_name, arguments)


def of_file(path: Path) -> Program:
    """One that says of itself what is to be expected. Raises ValueError."""
    text = _text_of(path)
    said = _told_by(text)
    if missing := [key for key in _SAID if key not in said]:
        raise ValueError(f"{path.relative_to(ROOT)}: its text does not say: {', '.join(missing)}")
    if unknown := set(said) - {*_SAID, *_MAY_BE_SAID}:
        raise ValueError(f"{path.relative_to(ROOT)}: its text says what nobody reads: {', '.join(sorted(unknown))}")
    return _program(path.stem, path, _sentence(text), said, "wrong", [])


def _told_by(text: str) -> dict[str, str]:
    """What the lines say that end it, `key: value`."""
    told = re.findall(r"^(\w+): (.*(?:\n +\S.*)*)", text.split("\n\n")[-1], re.M)
    return {key: " ".join(value.split()) for key, value in told}


def _program(name: str, path: Path, idiom: str, said: dict, mistake_name: str, arguments: list[str]) -> Program:
    if not re.search(r"\d+ (ranks|devices)", said["parallel"]):
        raise ValueError(f"{name}: expected a number of ranks in '{said['parallel']}'")
    return Program(
        name=name,
        path=path,
        arguments=tuple(arguments),
        package=said["package"],
        idiom=idiom,
        parallel=said["parallel"],
        mistake=said["mistake"],
        mistake_name=mistake_name,
        shows=tuple(pattern.strip().replace("[", "[[]") for pattern in said["shows"].split(",")),
        hint=said.get("hint", ""),
        iterations=said.get("iterations", ""),
        then=0,
        asks=said.get("asks", ""),
    )


def _text_of(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def _sentence(text: str) -> str:
    """What comes first in a text."""
    return re.split(r"\n\n|(?<=\.) ", text.strip())[0].replace("\n", " ")
