"""Checks, and their reports as values of Python: what `ttrace check --json` writes, field by field."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import _core


@dataclass(frozen=True)
class Worst:
    """The element of a tensor that differs most."""

    index: tuple[int, ...]  # in the logical tensor
    rank: int  # of the candidate, which holds it
    local_index: tuple[int, ...]  # there
    reference: float | None
    candidate: float | None
    abs: float | None


@dataclass(frozen=True)
class Statistic:
    measured: float | None
    allowed: float | None


@dataclass(frozen=True)
class Finding:
    """A tensor, its verdict and its reason; or, without name, kind and the like, a finding about ranks."""

    name: str
    kind: str | None
    iteration: int | None
    microbatch: int | None
    pass_: str | None  # "forward" or "recompute"
    verdict: str  # pass, fail, untrusted, missing, not-seen
    reason: str
    rel_err: float | None
    allowed: float | None
    ratio: float | None  # measured over allowed, of the statistic that exceeds its tolerance or else of rel_err
    exceeded: str | None  # that statistic
    statistics: Mapping[str, Statistic]  # beside rel_err: scale, row, element
    worst: Worst | None
    ranks: tuple[int, ...]  # of the candidate, that hold the error
    message: str


@dataclass(frozen=True)
class SourceLine:
    file: str  # relative to the top of the program's repository, where it lies in one
    line: int


@dataclass(frozen=True)
class Source:
    """Where a module is in the program's source, as far as the trace says it."""

    forward: SourceLine | None
    call: SourceLine | None


@dataclass(frozen=True)
class Root:
    """A wrong tensor that nothing wrong explains, and what its error looks like."""

    name: str
    kind: str | None
    iteration: int | None
    microbatch: int | None
    pass_: str | None
    module: str
    repeated: int  # in how many further micro-batches and iterations it is a root as well
    alike: tuple[str, ...]  # further tensors that are roots of the same kind
    explained: int  # how many wrong tensors follow from it
    diagnosis: str | None
    diagnosis_residual: float | None
    sentence: str
    standing: str | None  # what a second run says of it: confirmed, found, moved
    source: Source  # of the module


@dataclass(frozen=True)
class Counts:
    compared: int  # passed + fail + untrusted
    passed: int  # in JSON `pass`, which is a word of Python's
    fail: int
    untrusted: int
    missing: int
    not_seen: int


@dataclass(frozen=True)
class Proof:
    """Of the floating-point tensors of one kind, how many prove something."""

    compared: int
    proved: int
    others: Mapping[str, int]  # by reason
    enough: bool


@dataclass(frozen=True)
class Override:
    where: str
    pattern: str
    kind: str | None
    allowed: float | None
    reason: str
    covered: int
    excused: int


@dataclass(frozen=True)
class LoneTensors:
    """Tensors of one implementation that the other has no counterpart of."""

    tensors: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class WithoutCounterpart:
    reference: LoneTensors
    candidate: LoneTensors


@dataclass(frozen=True)
class OptimizerSteps:
    parameters: int
    parameters_checked: int
    updates: int
    updates_checked: int
    copies_checked: int
    iterations: tuple[int, ...]
    optimizers: tuple[str, ...]
    worst: float | None
    updates_regressed: int
    regressed_optimizers: tuple[str, ...]
    worst_regressed: float | None
    not_checkable: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """What a check has found. `str` of it is the text that `ttrace check` prints."""

    verdict: str  # same, different, could-not-look
    strict: bool
    reference: str
    candidate: str
    counts: Counts
    tests: int  # statistics that were held against tolerances
    waived: int
    placed_by_shape: int
    coverage: float | None  # the share of the reference's tensors that were compared
    proof: Mapping[str, Proof] | None  # by kind
    overrides: tuple[Override, ...]
    instead: str | None  # why the findings are not worth reading before something is done
    next: str | None  # the command worth typing next
    root_cause: Finding | None  # the first wrong one in execution order
    roots: tuple[Root, ...]
    wrong_in_second_run: int | None
    optimizer_steps: OptimizerSteps | None  # None: the trace says nothing of an optimizer
    findings: tuple[Finding, ...]  # every verdict but pass, in execution order
    notes: tuple[str, ...]
    _checked: _core.Checked = field(repr=False, compare=False)
    without_counterpart: WithoutCounterpart | None = None  # None: no correspondence file
    partial: str | None = None  # of a trace that holds less by design, a sentence that says what
    sketched: str | None = None  # of tensors that were judged by their sketches, a sentence that says how many
    unmeasured: str | None = None  # of tolerances that were not measured, a sentence that says what they are

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
    candidate: "str | os.PathLike[str]",
    reference: "str | os.PathLike[str]",
    **options: Any,
) -> Report:
    """Does the candidate compute what the reference computes? Both are directories of traces; the options are those of
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
    return _report_of(_core.check(reference=os.fspath(reference), candidate=os.fspath(candidate), **words))


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
    return tuple(_finding_of(values) for values in json.loads(text))


def _finding_of(values: dict[str, Any]) -> Finding:
    worst = values["worst"]
    if worst is not None:
        worst = Worst(**{**worst, "index": tuple(worst["index"]), "local_index": tuple(worst["local_index"])})
    statistics = {name: Statistic(**measured) for name, measured in values["statistics"].items()}
    known = {**values, "worst": worst, "statistics": statistics, "ranks": tuple(values["ranks"])}
    return Finding(pass_=known.pop("pass"), **known)


def _root_of(values: dict[str, Any]) -> Root:
    lines = {name: None if line is None else SourceLine(**line) for name, line in values["source"].items()}
    known = {**values, "alike": tuple(values["alike"]), "source": Source(**lines)}
    return Root(pass_=known.pop("pass"), **known)


def _steps_of(values: dict[str, Any] | None) -> OptimizerSteps | None:
    if values is None:
        return None
    lists = {name: tuple(values[name]) for name in ("iterations", "optimizers", "regressed_optimizers")}
    return OptimizerSteps(**{**values, **lists})


def _root_cause_of(values: dict[str, Any] | None) -> Finding | None:
    """In JSON the first root's diagnosis stands there, too."""
    if values is None:
        return None
    return _finding_of({name: value for name, value in values.items() if name in _IN_JSON})


def _without_counterpart_of(values: dict[str, Any] | None) -> WithoutCounterpart | None:
    if values is None:
        return None
    return WithoutCounterpart(
        **{side: LoneTensors(lone["tensors"], tuple(lone["names"])) for side, lone in values.items()}
    )


_IN_JSON = {name.rstrip("_") for name in Finding.__dataclass_fields__}


def _report_of(checked: _core.Checked) -> Report:
    values = json.loads(checked.json())
    values.pop("schema")
    counts, proof = values["counts"], values["proof"]
    known = {
        **values,
        "counts": Counts(passed=counts.pop("pass"), **counts),
        "proof": None if proof is None else {kind: Proof(**of_kind) for kind, of_kind in proof.items()},
        "overrides": tuple(Override(**override) for override in values["overrides"]),
        "root_cause": _root_cause_of(values["root_cause"]),
        "roots": tuple(_root_of(root) for root in values["roots"]),
        "optimizer_steps": _steps_of(values.get("optimizer_steps")),
        "without_counterpart": _without_counterpart_of(values.get("without_counterpart")),
        "findings": tuple(_finding_of(finding) for finding in values["findings"]),
        "notes": tuple(values["notes"]),
    }
    return Report(_checked=checked, **known)
