"""The releases, and what is run of each: releases.yaml."""

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from programs.table import ROOT, Program, of_file, programs

HERE = Path(__file__).resolve().parent
TABLE = HERE / "releases.yaml"
PROGRAMS = HERE / "programs"  # of packages that the collection has none of, or that must run in old releases
_HELPERS = ("deepspeed_engine", "megatron_program")  # modules that programs import
_MEMBERS = {"programs", "tests", "environment", "releases"}


@dataclass(frozen=True)
class Release:
    package: str
    version: str
    requirements: tuple[str, ...]  # lines of a list for tools/venv
    programs: tuple[Program, ...]
    tests: tuple[str, ...]  # files in tests/collect
    environment: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return f"{self.package}-{self.version}"

    def asked_for(self, any_build: bool) -> tuple[str, ...]:
        """The requirements, with PyTorch's build for the CPU alone unless any will do."""
        return tuple(map(_cpu_build, self.requirements)) if not any_build else self.requirements


def _cpu_build(requirement: str) -> str:
    """A machine of x86-64 gets PyTorch with CUDA, gigabytes of it, unless the label of the other build is asked for. On
    other machines PyPI's build has no CUDA, and no label."""
    is_plain = re.fullmatch(r"torch==[\d.]+", requirement)
    return f"{requirement}+cpu" if is_plain and _has_two_builds() else requirement


def _has_two_builds() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


def releases(text: str | None = None) -> list[Release]:
    """Of a table as releases.yaml. Raises ValueError, which names what is wrong."""
    known = {program.name: program for program in [*programs(), *_own()]}
    found = []
    for package, said in yaml.safe_load(TABLE.read_text() if text is None else text).items():
        if unknown := set(said) - _MEMBERS:
            raise ValueError(f"{package}: nobody reads {', '.join(sorted(unknown))}")
        if missing := [name for name in said["programs"] if name not in known]:
            raise ValueError(f"{package}: no program {', '.join(missing)}")
        for listed in said["releases"]:
            lines = tuple(_lines(listed))
            named = re.match(r"([\w-]+)==([\w.]+)", lines[0])
            if not named or named[1] != package:
                raise ValueError(f"{package}: expected '{package}==VERSION' first, in '{lines[0]}'")
            found.append(
                Release(
                    package=package,
                    version=named[2],
                    requirements=lines,
                    programs=tuple(known[name] for name in said["programs"]),
                    tests=tuple(said.get("tests", ())),
                    environment=tuple(said.get("environment", {}).items()),
                )
            )
    return found


def _own() -> Iterator[Program]:
    return (of_file(path) for path in sorted(PROGRAMS.glob("*.py")) if path.stem not in _HELPERS)


def _lines(listed: str | list[str]) -> list[str]:
    """Those given, or those of the list that has this path."""
    lines = (ROOT / listed).read_text().splitlines() if isinstance(listed, str) else listed
    return [line for line in lines if line.strip() and not line.startswith("#")]
