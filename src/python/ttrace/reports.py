"""Checks, and their reports as values of Python: what `ttrace check --json` writes, field by field."""

import dataclasses
import functools
import json
import os
import pathlib
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from . import _core, report_types
from ._typed import typed
from .check_options import CheckOptions
from .report_types import Finding

if TYPE_CHECKING:  # Python 3.10 has it from there alone
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Report(report_types.Report):
    """What a check has found. `str` of it is the text that `ttrace check` prints."""

    _checked: _core.Checked = field(repr=False, compare=False, kw_only=True)

    @property
    def same(self) -> bool:
        return self.verdict == "same"

    @property
    def sentence(self) -> str:
        """The first root's, or what the verdict is."""
        return self._checked.sentence()

    @property
    def command(self) -> str:
        """The command line that prints all findings."""
        return self._checked.command()

    @cached_property
    def passed(self) -> tuple[Finding, ...]:
        """The tensors that pass, in execution order."""
        return findings_of(self._checked.passed_json())

    def text(self, *, all: bool = False) -> str:
        """As `ttrace check` prints it; `all` findings, or the first ones."""
        return self._checked.text(all)

    def to_json(self) -> str:
        """As `ttrace check --json` writes it."""
        return self._checked.json()

    def to_html(self) -> str:
        """A page, as `ttrace check --html` writes it. It has pictures of tensors where `check` was asked for them."""
        return self._checked.html()

    def __str__(self) -> str:
        return self.text()


def check(
    candidate: "str | os.PathLike[str]", reference: "str | os.PathLike[str]", **options: "Unpack[CheckOptions]"
) -> Report:
    """Does the candidate compute what the reference computes? Both are directories of traces, or files and folders that
    other programs saved (`compare` takes what is in memory, too); the options are those of
    `ttrace check`, by their long names: `annotations` (`-a`), `settings` (`--set`), `tolerance` (`-t`),
    `reference_annotations`, `correspondence`, `only` (a pattern), `iterations` (a list), `strict`, `checksums`, ...
    `pictures` are for `Report.to_html`. Raises InputError where it could not look, except where what was compared
    proves too little: that is a verdict.

    >>> report = ttrace.check("candidate", "reference", annotations="gpt.yaml")
    >>> report.verdict
    'different'
    >>> print(report.sentence)  # doctest: +ELLIPSIS
    mlp, output, micro-batch 0: every element is 2 times the reference's, ...
    >>> [(finding.name, finding.kind, finding.microbatch) for finding in report.findings]
    [('mlp', 'output', 0), ('mlp', 'output', 1)]
    """
    words = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    sides = {"reference": os.fspath(reference), "candidate": os.fspath(candidate)}
    if not all(holds_trace(path) for path in sides.values()):
        words.setdefault("python", sys.executable)  # it reads what is none
    return _report_of(_core.check(**sides, **words))


def holds_trace(path: str) -> bool:
    """Whether a recorded trace lies there."""
    return any(pathlib.Path(path).glob("rank-*.h5"))


def estimate_tolerance(
    reference: "str | os.PathLike[str]",
    perturbed: "Sequence[str | os.PathLike[str]]",
    output: "str | os.PathLike[str]",
    *,
    rerun: "str | os.PathLike[str]" = "",
    annotations: "str | os.PathLike[str]" = "",
    settings: Sequence[str] = (),
    axes: str = "",
    margin: float = 3,
) -> str:
    """Measures what each tensor may differ by, and writes it to the file `output`, for `check`. `perturbed` are traces
    of three or more runs of the reference whose activations were perturbed, with a seed each, and `rerun` is that of
    one more that was not. Returns a summary for people. Raises InputError. `ttrace.testing.record_reference` does all
    of it."""
    with typed("estimate_tolerance"):
        return _core.estimate_tolerance(
            reference=os.fspath(reference),
            perturbed=[os.fspath(run) for run in perturbed],
            rerun=os.fspath(rerun),
            annotations=os.fspath(annotations),
            settings=list(settings),
            axes=axes,
            margin=margin,
            output=os.fspath(output),
        )


def findings_of(text: str) -> tuple[Finding, ...]:
    """Of a list in JSON."""
    findings: tuple[Finding, ...] = _reader_of(tuple[Finding, ...])(json.loads(text))
    return findings


_JSON_NAMES = {"pass_": "pass", "passed": "pass"}  # `pass` is a word of Python's


@functools.cache
def _reader_of(hint: Any) -> Callable[[Any], Any]:
    """Returns what makes a value of the type from JSON's."""
    of_type, arguments = typing.get_origin(hint), typing.get_args(hint)
    if type(None) in arguments:
        read = _reader_of(next(each for each in arguments if each is not type(None)))
        return lambda value: None if value is None else read(value)
    if of_type is tuple:
        read_each = _reader_of(arguments[0])
        return lambda values: tuple(read_each(value) for value in values)
    if of_type is Mapping:
        read_each = _reader_of(arguments[1])
        return lambda values: {name: read_each(value) for name, value in values.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        members = _members_of(hint)
        return lambda values: hint(**{name: read(values.get(known_as)) for name, known_as, read in members})
    return lambda value: value


def _members_of(type_of_report: Any) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """The members of a dataclass of `report_types`: name, name in JSON, reader."""
    return [
        (name, _JSON_NAMES.get(name, name), _reader_of(hint))
        for name, hint in typing.get_type_hints(type_of_report).items()
    ]


def _report_of(checked: _core.Checked) -> Report:
    values = json.loads(checked.json())
    members = _members_of(report_types.Report)
    return Report(_checked=checked, **{name: read(values.get(known_as)) for name, known_as, read in members})
