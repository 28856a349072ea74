"""Mutants: recorded runs, tolerances and annotations changed in known ways, and whether check may still say same.

A correct run of two steps is recorded once. Each mutant is that run, or a file that the check reads, with one change,
and the verdicts that are right for it; `same` for a change that changes nothing is one of them."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from sweeps.configurations import Configuration, Model
from sweeps.runs import TTRACE, RunError, collect, estimate

from . import faulty_step
from .bench import Bench, Run
from .markdown import table
from .tolerance_file import read_tolerances
from .trace_edits import Rank, Recorded, copy_trace, edit_each, read_trace, write_edited

TITLE = "Mutants: what must not be called the same"

MODEL = Model("gpt-mutants", "--layers 2 --steps 2", iterations="0-1")
BEDS = [Configuration(MODEL, "bf16", dict(tp=2, dp=2), "--sp"), Configuration(MODEL, "fp32", dict(tp=2, dp=2), "--sp")]

VERDICTS = {0: "same", 1: "different", 2: "could-not-look"}
DIFFERENT, REFUSED, SAME = {"different"}, {"could-not-look"}, {"same"}
NOT_SAME = DIFFERENT | REFUSED

# The kinds that every run has; of an optimizer's state there is more, which the step is checked with.
KINDS = [
    "input",
    "output",
    "grad_output",
    "grad_input",
    "param",
    "param_grad",
    "main_grad",
    "param_delta",
    "param_after",
    "scalar",
]
PARAMETERS = {"param", "main_grad", "param_delta", "param_after"}


@dataclass
class Check:
    """The arguments of a check."""

    reference: Path
    candidate: Path
    annotations: Path | str | None  # a file or a preset
    tolerance: Path
    options: list[str] = field(default_factory=list)

    def verdict(self) -> str:
        command = [TTRACE, "check", "--reference", self.reference, "--candidate", self.candidate]
        command += ["-t", self.tolerance, *self.options]
        if self.annotations:
            command += ["-a", self.annotations]
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        if result.returncode not in VERDICTS:
            raise RunError(f"{command}: exit code {result.returncode}\n{result.stderr}")
        return VERDICTS[result.returncode]


@dataclass
class Mutant:
    kind: str
    where: str
    right: set[str]  # verdicts
    # Changes the check, and puts what it needs into the directory. Throws Refusal where ttrace would not go on.
    make: Callable[[Path, Check], None]


class Refusal(Exception):
    """A command before the check ended with could-not-look."""


class Bed:
    """A correct run in memory."""

    def __init__(self, check: Check):
        self.check = check
        self.reference, self.candidate = read_trace(check.reference), read_trace(check.candidate)
        self.tolerances = read_tolerances(check.tolerance)
        self.iterations = sorted({tensor.tensor_id.iteration for tensor in self.candidate[0].tensors})
        self._held: dict[tuple[str, str], torch.Tensor] = {}  # by rank 0
        for tensor in self.candidate[0].tensors:
            if tensor.value.is_floating_point() and tensor.value.count_nonzero() > 0:
                self._held.setdefault(tensor.key, tensor.value)

    def trusted(self, kind: str) -> tuple[str, str] | None:
        """Name and kind of a tensor with a tolerance that a gross error exceeds: the middle one of those that rank 0
        holds. The step's own tolerances may be loose: of these the tightest."""
        found = [
            key
            for key, tolerance in self.tolerances.items()
            if key[1] == kind and tolerance["allowed"] < 0.25 and self.value_of(key) is not None
        ]
        if kind == "param_delta":
            held = (key for key in self.tolerances if key[1] == kind and self.value_of(key) is not None)
            found = sorted(held, key=lambda key: self.tolerances[key]["allowed"])
            return found[0] if found else None
        return found[len(found) // 2] if found else None

    def copied(self, kind: str) -> tuple[str, str] | None:
        """Name and kind of a tensor that the last rank and another one hold copies of: the middle one of them."""

        def first_of(rank: Rank, key: tuple[str, str]) -> Iterator[torch.Tensor]:
            return (tensor.value for tensor in rank.tensors if _is_first(tensor, key))

        def is_copied(key: tuple[str, str]) -> bool:
            *others, last = self.candidate
            return any(
                torch.equal(mine, other)
                for mine in first_of(last, key)
                for rank in others
                for other in first_of(rank, key)
            )

        found = [key for key in self.tolerances if key[1] == kind and self.value_of(key) is not None and is_copied(key)]
        return found[len(found) // 2] if found else None

    def value_of(self, key: tuple[str, str]) -> torch.Tensor | None:
        """What rank 0 holds of it, where it is not all zero and floating-point."""
        return self._held.get(key)


# What is done to a value. Each is a gross error: half the value's own size, or more.
def _rows_reversed(value: torch.Tensor) -> torch.Tensor:
    return value.flip(0) if value.dim() else value + 1


def _one_element(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def edit(value: torch.Tensor) -> torch.Tensor:
        value = value.clone()
        value.reshape(-1)[value.numel() // 2] = number
        return value

    return edit


def _noise(value: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    rms = value.double().square().mean().sqrt()
    return (value.double() + rms * torch.randn(value.shape, generator=generator, dtype=torch.float64)).to(value.dtype)


EDITS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scaled by 1.5": lambda value: (value.double() * 1.5).to(value.dtype),
    "halved": lambda value: (value.double() / 2).to(value.dtype),
    "negated": torch.neg,
    "zero": torch.zeros_like,
    "a million times too large": lambda value: (value.double() * 1e6).to(value.dtype),
    "noise as large as the value": _noise,
    "rows reversed": _rows_reversed,
    "one NaN": _one_element(float("nan")),
    "one Inf": _one_element(float("inf")),
}
ON_ONE_RANK = ["scaled by 1.5", "negated", "zero", "one NaN"]


def of_traces(bed: Bed) -> Iterator[Mutant]:
    """Those that need nothing but traces and a tolerance file."""
    yield from values(bed)
    yield from on_both_sides(bed)
    yield from small_differences_between_copies(bed)
    yield from structure(bed)
    yield from bytes_on_disk(bed)
    yield from steps(bed)
    yield from tolerances(bed)
    yield from other_runs(bed)


def of_run(bed: Bed, run: Run, quick: bool) -> Iterator[Mutant]:
    """Those of a run of tinygpt, which can be run again."""
    yield from of_traces(bed)
    yield from estimates(bed, run.reference / "runs")
    yield from annotations(bed)
    yield from programs(run.configuration, quick)


def _is_first(tensor: Recorded, key: tuple[str, str]) -> bool:
    """The tensor of that name and kind in iteration 0, of the first micro-batch where it has one."""
    return tensor.key == key and tensor.tensor_id.iteration == 0 and tensor.tensor_id.microbatch <= 0


def _edited(
    bed: Bed, chosen: Callable[[int, Recorded], bool], edit: Callable[[int, Recorded], Recorded | None], side: str
) -> Callable[[Path, Check], None]:
    def make(home: Path, check: Check) -> None:
        ranks = bed.candidate if side == "candidate" else bed.reference
        edited = edit_each(ranks, chosen, edit)
        if not edited:
            raise RunError("a mutant that changes nothing")
        write_edited(getattr(bed.check, side), edited, home / side)
        setattr(check, side, home / side)

    return make


def _both(*makes: Callable[[Path, Check], None]) -> Callable[[Path, Check], None]:
    def make(home: Path, check: Check) -> None:
        for one in makes:
            one(home, check)

    return make


def values(bed: Bed) -> Iterator[Mutant]:
    for kind in KINDS:
        key = bed.trusted(kind)
        if key is None:
            continue
        last = max(n for n, rank in enumerate(bed.candidate) if any(_is_first(t, key) for t in rank.tensors))
        for words, edit in EDITS.items():
            if words == "rows reversed" and kind == "scalar":
                continue
            make = _edited(
                bed,
                lambda _, tensor, key=key: _is_first(tensor, key),
                lambda _, tensor, edit=edit: tensor.holding(edit(tensor.value)),
                "candidate",
            )
            yield Mutant(f"value: {words}", f"{kind} of {key[0]}, all ranks", DIFFERENT, make)
            if words not in ON_ONE_RANK:
                continue
            make = _edited(
                bed,
                lambda rank, tensor, key=key, last=last: rank == last and _is_first(tensor, key),
                lambda _, tensor, edit=edit: tensor.holding(edit(tensor.value)),
                "candidate",
            )
            yield Mutant(f"value on one rank: {words}", f"{kind} of {key[0]}, rank {last}", DIFFERENT, make)


def on_both_sides(bed: Bed) -> Iterator[Mutant]:
    """What proves nothing, since it is so on both sides."""
    fillings = {
        "NaN": lambda value: torch.full_like(value, float("nan")),
        "zero": torch.zeros_like,
        "Inf": lambda value: torch.full_like(value, float("inf")),
    }
    groups = {
        "all floating-point tensors": set(KINDS),
        "all gradients": {"grad_output", "grad_input", "param_grad", "main_grad"},
        "all activations": {"input", "output"},
        "all parameters after the step": {"param_after"},
        "the loss": {"loss"},
    }
    for filling, fill in fillings.items():
        for words, group in groups.items():

            def chosen(_, tensor: Recorded, group=group) -> bool:
                name, kind = tensor.key
                return tensor.value.is_floating_point() and (kind in group or (name in group and kind == "scalar"))

            def edit(_, tensor: Recorded, fill=fill) -> Recorded:
                return tensor.holding(fill(tensor.value))

            if not any(chosen(0, tensor) for rank in bed.candidate for tensor in rank.tensors):
                continue
            make = _both(*(_edited(bed, chosen, edit, side) for side in ("reference", "candidate")))
            yield Mutant(f"both sides: {filling}", words, NOT_SAME, make)


def small_differences_between_copies(bed: Bed) -> Iterator[Mutant]:
    """The last rank's copy of what another rank holds as well."""
    last = len(bed.candidate) - 1

    def one_step(value: torch.Tensor) -> torch.Tensor:  # of the dtype, in one element
        value = value.clone()
        flat = value.reshape(-1)
        bits = {2: torch.int16, 4: torch.int32}[value.element_size()]
        flat.view(bits)[value.numel() // 2] += 1
        return value

    for kind in sorted(PARAMETERS):
        key = bed.copied(kind)
        for words, edit in {
            "one unit in the last place": one_step,
            "3 percent": lambda value: (value.double() * 1.03).to(value.dtype),
        }.items():
            if key is None:
                continue
            make = _edited(
                bed,
                lambda rank, tensor, key=key: rank == last and _is_first(tensor, key),
                lambda _, tensor, edit=edit: tensor.holding(edit(tensor.value)),
                "candidate",
            )
            yield Mutant(f"a copy is off by {words}", f"{kind} of {key[0]}, rank {last}", DIFFERENT, make)


def structure(bed: Bed) -> Iterator[Mutant]:
    last = len(bed.candidate) - 1
    for kind in KINDS:
        key = bed.trusted(kind)
        if key is None:
            continue

        def first(_, tensor: Recorded, key=key) -> bool:
            return _is_first(tensor, key)

        holder = max(n for n, rank in enumerate(bed.candidate) if any(t.key == key for t in rank.tensors))

        def first_on_last(rank: int, tensor: Recorded, key=key, holder=holder) -> bool:
            return rank == holder and tensor.key == key

        yield Mutant(
            "a tensor is not there", f"{kind} of {key[0]}", DIFFERENT, _edited(bed, first, _left_out, "candidate")
        )
        yield Mutant(
            "one rank's part is not there",
            f"{kind} of {key[0]}, rank {holder}",
            DIFFERENT,
            _edited(bed, first_on_last, _left_out, "candidate"),
        )
        if kind in PARAMETERS and bed.value_of(key).dtype == torch.float32:
            yield Mutant(
                "a narrower dtype",
                f"{kind} of {key[0]}",
                DIFFERENT,
                _edited(bed, first, lambda _, t: t.holding(t.value.to(torch.bfloat16)), "candidate"),
            )
        if kind != "scalar":
            yield Mutant(
                "another shape",
                f"{kind} of {key[0]}",
                NOT_SAME,
                _edited(bed, first, lambda _, t: t.in_another_shape(), "candidate"),
            )
        if len(bed.iterations) > 1 and kind in PARAMETERS | {"output"}:
            yield Mutant(
                "the value of the next iteration",
                f"{kind} of {key[0]}",
                DIFFERENT if kind != "param" else NOT_SAME,
                _stale(bed, key),
            )
    integers = next(
        (t.key for t in bed.candidate[0].tensors if not t.value.is_floating_point() and t.value.numel() > 1), None
    )
    if integers is not None:

        def is_integer(_, tensor: Recorded) -> bool:
            return _is_first(tensor, integers)

        for words, edit, verdicts in (
            ("off by one", lambda value: value + 1, DIFFERENT),
            ("rolled", lambda value: value.roll(1), DIFFERENT),
            ("floating-point", lambda value: value.float(), SAME),  # the same numbers: a note says so
        ):
            yield Mutant(
                f"integers: {words}",
                integers[0],
                verdicts,
                _edited(bed, is_integer, lambda _, t, edit=edit: t.holding(edit(t.value)), "candidate"),
            )
    parts = {
        "micro-batch 0": lambda _, tensor: tensor.tensor_id.microbatch == 0,
        "the backward pass": lambda _, tensor: "grad" in tensor.key[1],
        "the optimizer's step": lambda _, tensor: tensor.key[1] in ("param_delta", "param_after"),
        "everything of the last rank": lambda rank, _: rank == last,
    }
    if len(bed.iterations) > 1:
        parts["the last iteration"] = lambda _, tensor: tensor.tensor_id.iteration == bed.iterations[-1]
    for words, chosen in parts.items():
        yield Mutant("a part of the run is not there", words, NOT_SAME, _edited(bed, chosen, _left_out, "candidate"))
    for rank in range(len(bed.candidate)):
        yield Mutant("a rank is not there", f"rank {rank}", NOT_SAME, _without_rank(bed, rank))
    for other in sorted({1, len(bed.candidate) // 2, last}):
        right = NOT_SAME | SAME if _are_copies(bed, 0, other) else NOT_SAME
        yield Mutant("two ranks exchanged", f"0 and {other}", right, _exchanged(bed, 0, other))
    yield Mutant("nothing", "ranks written again", SAME, _edited(bed, lambda *_: True, lambda _, t: t, "candidate"))


def _left_out(_rank: int, _tensor: Recorded) -> None:
    return None


def _stale(bed: Bed, key: tuple[str, str]) -> Callable[[Path, Check], None]:
    def later(rank: int, tensor: Recorded) -> Recorded:
        next_id = tensor.tensor_id._replace(iteration=bed.iterations[1])
        (other,) = [t for t in bed.candidate[rank].tensors if t.tensor_id == next_id]
        return tensor.holding(other.value)

    return _edited(bed, lambda _, tensor: _is_first(tensor, key), later, "candidate")


def _without_rank(bed: Bed, rank: int) -> Callable[[Path, Check], None]:
    def make(home: Path, check: Check) -> None:
        write_edited(bed.check.candidate, {}, home / "candidate")
        (home / "candidate" / f"rank-{rank:05}.h5").unlink()
        check.candidate = home / "candidate"

    return make


def _are_copies(bed: Bed, one: int, other: int) -> bool:
    """Whether the ranks have equal parameters and gradients: then which has which samples makes no difference."""

    def kept(rank: int) -> dict[tuple, torch.Tensor]:
        tensors = bed.candidate[rank].tensors
        return {tensor.tensor_id: tensor.value for tensor in tensors if tensor.key[1] in PARAMETERS}

    mine, others = kept(one), kept(other)
    return mine.keys() == others.keys() and all(torch.equal(mine[key], others[key]) for key in mine)


def _exchanged(bed: Bed, one: int, other: int) -> Callable[[Path, Check], None]:
    def make(home: Path, check: Check) -> None:
        ranks = bed.candidate
        edited = {
            one: Rank(ranks[one].attributes, ranks[other].tensors),
            other: Rank(ranks[other].attributes, ranks[one].tensors),
        }
        write_edited(bed.check.candidate, edited, home / "candidate")
        check.candidate = home / "candidate"

    return make


def bytes_on_disk(bed: Bed) -> Iterator[Mutant]:
    """Files that were damaged after they were written."""
    for side in ("candidate", "reference"):
        size = (getattr(bed.check, side) / "rank-00000.h5").stat().st_size
        for words, at in {"header": 20, "seal": 100, "index": size - 2000, "end": size - 1}.items():
            yield Mutant(
                "a byte flipped", f"{side}, {words}", REFUSED, _damaged(bed, side, lambda d, at=at: _flip(d, at))
            )
        for kind in ("output", "main_grad", "param_after"):
            if bed.trusted(kind) is None:
                continue
            yield Mutant(
                "a bit of a tensor's data flipped", f"{side}, {kind}", NOT_SAME, _flipped_data(bed, side, kind)
            )
        for words, keep in {"the last byte": size - 1, "half": size // 2, "all but the header": 4096, "all": 0}.items():
            yield Mutant("cut off", f"{side}, {words}", NOT_SAME, _damaged(bed, side, lambda d, keep=keep: d[:keep]))


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _damaged(bed: Bed, side: str, damage: Callable[[bytes], bytes]) -> Callable[[Path, Check], None]:
    def make(home: Path, check: Check) -> None:
        copy_trace(getattr(bed.check, side), home / side)
        path = home / side / "rank-00000.h5"
        path.write_bytes(damage(path.read_bytes()))
        setattr(check, side, home / side)

    return make


def _flipped_data(bed: Bed, side: str, kind: str) -> Callable[[Path, Check], None]:
    ranks = bed.candidate if side == "candidate" else bed.reference
    key = bed.trusted(kind)
    value = next(tensor.value for tensor in ranks[0].tensors if tensor.key == key)

    def flip(data: bytes) -> bytes:
        at = data.find(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return _flip(data, at + 1)

    return _damaged(bed, side, flip)


def steps(bed: Bed) -> Iterator[Mutant]:
    """Wrong updates whose parameters follow: param_after and what comes later are as the wrong update leaves them."""
    deltas = sorted({t.key[0] for rank in bed.candidate for t in rank.tensors if t.key[1] == "param_delta"})
    for words, factor in {"20 percent too large": 1.2, "1 percent too small": 0.99, "not taken": 0.0}.items():
        for names in (deltas, deltas[:1], deltas[-1:]):
            where = "all parameters" if len(names) > 1 else names[0]
            yield Mutant(f"the step is {words}", where, DIFFERENT, _stepped(bed, set(names), factor))


def _stepped(bed: Bed, names: set[str], factor: float) -> Callable[[Path, Check], None]:
    def chosen(_, tensor: Recorded) -> bool:
        name, kind = tensor.key
        return (
            name in names
            and kind in ("param_delta", "param_after")
            and tensor.tensor_id.iteration == bed.iterations[-1]
        )

    def edit(rank: int, tensor: Recorded) -> Recorded:
        if tensor.key[1] == "param_delta":
            return tensor.holding(tensor.value * factor)
        deltas = [
            t
            for t in bed.candidate[rank].tensors
            if t.key == (tensor.key[0], "param_delta") and t.tensor_id.iteration == bed.iterations[-1]
        ]
        if not deltas or deltas[0].value.shape != tensor.value.shape:
            return tensor
        return tensor.holding((tensor.value.double() + deltas[0].value.double() * (factor - 1)).to(tensor.value.dtype))

    return _edited(bed, chosen, edit, "candidate")


def _worse_candidate(bed: Bed) -> Callable[[Path, Check], None]:
    """Every floating-point value of the candidate negated."""
    return _edited(
        bed,
        lambda _, tensor: tensor.value.is_floating_point(),
        lambda _, tensor: tensor.holding(-tensor.value),
        "candidate",
    )


def tolerances(bed: Bed) -> Iterator[Mutant]:
    """Tolerance files that would let anything pass; the candidate is wrong in every value."""
    text = bed.check.tolerance.read_text()

    def with_text(changed: str) -> Callable[[Path, Check], None]:
        if changed == text:
            raise RunError("a tolerance file that was not changed")

        def make(home: Path, check: Check) -> None:
            check.tolerance = home / "tolerance.yaml"
            check.tolerance.write_text(changed)

        return make

    wrong = _worse_candidate(bed)
    for allowed in ("0.9", "1", "5", "1e9", "inf", "nan", "-1"):
        edited = re.sub(r"allowed: [^}]+", f"allowed: {allowed}", text)
        yield Mutant("allowed: edited", f"all are {allowed}", NOT_SAME, _both(with_text(edited), wrong))
    for pattern in ("**", _most(bed)):
        for allowed in ("0.5", "1", "5", "1e9"):
            entry = f'overrides:\n  - {{pattern: "{pattern}", allowed: {allowed}, reason: "because"}}'
            edited = text.replace("overrides: []", entry)
            yield Mutant("an override", f"'{pattern}' allowed {allowed}", NOT_SAME, _both(with_text(edited), wrong))
    edited = re.sub(r"margin: \S+", "margin: 1000", text)
    yield Mutant("the margin edited", "1000", NOT_SAME, _both(with_text(edited), wrong))
    edited = re.sub(r"compute_dtype: \w+", "compute_dtype: float16", text)
    yield Mutant("another compute dtype", "float16", REFUSED, with_text(edited))
    edited = re.sub(r"^reference: \S+", "reference: another", text, flags=re.MULTILINE)
    yield Mutant("of another reference", "run id", REFUSED, with_text(edited))
    perturbed = re.findall(r"^  - \{run:.*\}\n", text, flags=re.MULTILINE)
    if len(perturbed) > 1:
        edited = text.replace("".join(perturbed[1:]), "")
        yield Mutant("of one perturbed run", "the others cut out", REFUSED, with_text(edited))
    for cut in (len(text) // 2, 40, 0):
        yield Mutant("the file cut off", f"after {cut} bytes", REFUSED, with_text(text[:cut]))
    yield Mutant("a comment in the file", "at the end", SAME, with_text(text + "# nothing\n"))


def _most(bed: Bed) -> str:
    """A pattern that most tensors' names match, but not all."""
    beginnings = Counter(name.partition(".")[0] for name, _ in bed.tolerances)
    return f"{beginnings.most_common(1)[0][0]}.**"


def estimates(bed: Bed, runs: Path) -> Iterator[Mutant]:
    """Tolerances estimated from runs of which one is broken; the candidate is wrong in the same kinds of tensors."""

    def wrong(kinds: set[str]) -> Callable[[Path, Check], None]:
        return _edited(
            bed,
            lambda _, tensor: tensor.value.is_floating_point() and tensor.key[1] in kinds,
            lambda _, tensor: tensor.holding((tensor.value.double() * 1.4).to(tensor.value.dtype)),
            "candidate",
        )

    perturbed = sorted(path.name for path in runs.glob("perturbed-*") if path.is_dir())

    def estimated(run: str, kinds: set[str], edit: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
        def make(home: Path, check: Check) -> None:
            edited = edit_each(
                read_trace(runs / run),
                lambda _, tensor: tensor.value.is_floating_point() and tensor.key[1] in kinds,
                lambda _, tensor: tensor.holding(edit(tensor.value)),
            )
            write_edited(runs / run, edited, home / run)
            paths = {name: home / name if name == run else runs / name for name in [*perturbed, "rerun"]}
            check.tolerance = home / "tolerance.yaml"
            command = [TTRACE, "estimate-tolerance", "--reference", check.reference, "-a", check.annotations]
            command += ["-o", check.tolerance, "--rerun", paths["rerun"]]
            command += ["--perturbed", *(paths[name] for name in perturbed)]
            result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
            if result.returncode == 2:
                raise Refusal(result.stderr)
            if result.returncode != 0:
                raise RunError(f"{command}: exit code {result.returncode}\n{result.stderr}")

        return make

    faults = {
        "scaled by 1.5": EDITS["scaled by 1.5"],
        "negated": EDITS["negated"],
        "one NaN in each tensor": EDITS["one NaN"],
        "all NaN": lambda value: torch.full_like(value, float("nan")),
        "30 percent too large": lambda value: (value.double() * 1.3).to(value.dtype),
    }
    unchanged = estimated(perturbed[-1], set(KINDS), torch.clone)
    yield Mutant("nothing", "tolerances estimated again, of a perturbed run written again", SAME, unchanged)
    for words, edit in faults.items():
        for run, what in ((perturbed[-1], "a perturbed run"), ("rerun", "the rerun")):
            for kinds, which in ((set(KINDS), "all kinds"), ({"output"}, "outputs"), ({"main_grad"}, "main gradients")):
                make = _both(estimated(run, kinds, edit), wrong(kinds))
                yield Mutant(f"{what} is broken", f"{words}: {which}", NOT_SAME, make)


def annotations(bed: Bed) -> Iterator[Mutant]:
    """Annotations that say something wrong of the program, which is right."""
    names = sorted({t.key[0] for t in bed.candidate[0].tensors if t.key[1] == "param"})
    sharded = [n for n in names if _is_sharded(bed, n)]
    whole = [n for n in names if n not in sharded]

    def rule(name: str, words: str) -> Callable[[Path, Check], None]:
        def make(home: Path, check: Check) -> None:
            original = check.annotations.read_text().rstrip().rstrip("}").rstrip()
            check.annotations = home / "annotations.yaml"
            check.annotations.write_text(f'{original},\n  "{name}": {words}\n}}\n')

        return make

    for name in sharded[:4]:
        yield Mutant("a rule: a sharded parameter is whole", name, NOT_SAME, rule(name, "{tp: replicate}"))
        yield Mutant("a rule: a sharded parameter is a sum", name, NOT_SAME, rule(name, "{tp: partial}"))
        if bed.value_of((name, "param")) is not None and bed.value_of((name, "param")).dim() == 2:
            other = 1 - _is_sharded(bed, name).index(True)
            yield Mutant("a rule: the other dimension", name, NOT_SAME, rule(name, f"{{tp_dim: {other}}}"))
    for name in whole[:4]:
        yield Mutant("a rule: a whole parameter is sharded", name, NOT_SAME, rule(name, "{tp_dim: 0}"))
        yield Mutant("a rule: copies of a parameter are a sum", name, NOT_SAME, rule(name, "{tp: partial}"))
        halved = _edited(
            bed,
            lambda _, tensor, name=name: tensor.key == (name, "main_grad"),
            lambda _, tensor: tensor.holding(tensor.value / 2),
            "candidate",
        )
        blessed = rule(name, "{tp: replicate, main_grad: {tp: partial}}")
        yield Mutant("a rule that blesses halves never added up", name, NOT_SAME, _both(halved, blessed))


def _is_sharded(bed: Bed, name: str) -> list[bool]:
    """By dimension, whether the candidate's rank 0 holds a part; empty where none is."""

    def shape(rank: Rank) -> tuple[int, ...]:
        return next(tuple(t.value.shape) for t in rank.tensors if t.key == (name, "param"))

    try:
        parts = [a != b for a, b in zip(shape(bed.reference[0]), shape(bed.candidate[0]), strict=True)]
    except StopIteration:
        return []
    return parts if any(parts) else []


def other_runs(bed: Bed) -> Iterator[Mutant]:
    def the_reference_itself(_home: Path, check: Check) -> None:
        check.candidate = check.reference

    yield Mutant("reference and candidate are one run", "the same directory", REFUSED, the_reference_itself)

    def copied(home: Path, check: Check) -> None:
        copy_trace(check.reference, home / "candidate")
        check.candidate = home / "candidate"

    yield Mutant("reference and candidate are one run", "a copy of the directory", REFUSED, copied)

    def exchanged(_home: Path, check: Check) -> None:
        check.candidate, check.reference = check.reference, check.candidate

    yield Mutant("reference and candidate exchanged", "as the options name them", REFUSED, exchanged)
    for kind in ("output", "main_grad"):
        key = bed.trusted(kind)
        changed = _edited(
            bed,
            lambda _, tensor, key=key: tensor.key == key,
            lambda _, tensor: tensor.holding((tensor.value.double() * 1.02).to(tensor.value.dtype)),
            "reference",
        )
        yield Mutant("the reference changed after estimation", f"{kind} of {key[0]} by 1.02", REFUSED, changed)

    def without_tolerance(_home: Path, check: Check) -> None:
        check.options += ["--threads", "1"]
        check.tolerance = Path("/dev/null")

    yield Mutant("an empty tolerance file", "no tensor listed", NOT_SAME, without_tolerance)


# In bf16 the norms' weights are 1, and their step of 0.001 is lost in rounding; in fp32 there are no masters to round.
_NO_FAULT_IN = {"bf16": {"vector-not-copied"}, "fp32": {"bfloat16-masters"}}


def programs(configuration: Configuration, quick: bool) -> Iterator[Mutant]:
    """Programs that are run: with faults in the optimizer's step, and with options of their own."""
    faults = [name for name in faulty_step.FAULTS if name not in _NO_FAULT_IN[configuration.dtype]]
    for fault in faults[:: 5 if quick else 1]:
        right = SAME if fault == "none" else DIFFERENT
        words = "nothing" if fault == "none" else "a program whose optimizer's step is wrong"
        yield Mutant(words, f"run anew: {fault}", right, _ran(configuration, [], [faulty_step.__file__, fault]))
    for options in ("--lr 1.2e-3", "--lr 0.999e-3", "--seed 5", "--clip-grad 0.5", "--optimizer sgd"):
        if quick and options != "--lr 1.2e-3":
            continue
        yield Mutant("a program with other options", options, DIFFERENT, _ran(configuration, options.split(), []))


def _ran(configuration: Configuration, arguments: list[str], program: list[str]) -> Callable[[Path, Check], None]:
    def make(home: Path, check: Check) -> None:
        collect(configuration, home, *arguments, program=program)
        check.candidate = home / "trace"

    return make


def measure(bench: Bench) -> list[dict]:
    beds = BEDS[: 1 if bench.quick else 2]
    bench.prepare((bed.model, bed.dtype) for bed in beds)
    rows: list[dict] = []
    for configuration in beds:
        run = bench.run(configuration)
        estimate(
            run.reference, configuration.model, configuration.dtype, run.reference / "tolerance.yaml", keep_runs=True
        )
        bed = Bed(check_of(run))
        rows += judged(bench, configuration.name, bed, of_run(bed, run, bench.quick))
        shutil.rmtree(run.home)
    return rows


def check_of(run: Run) -> Check:
    return Check(
        run.reference / "trace", run.home / "trace", run.home / "annotations.yaml", next(iter(run.tolerances.values()))
    )


def judged(bench: Bench, name: str, bed: Bed, mutants: Iterable[Mutant]) -> list[dict]:
    """What the check says of each. Throws RunError where the run itself is not the same."""
    if bed.check.verdict() != "same":
        raise RunError(f"{name}: the run that mutants are made of is not the same")
    found = bench.map(
        f"mutants of {name}", lambda mutant: _row(bench, bed, mutant), bench.chosen(mutants, _name_of), _name_of
    )
    return [{"bed": name, **row} for row in found]


def _name_of(mutant: Mutant) -> str:
    return f"{mutant.kind}: {mutant.where}"


def _row(bench: Bench, bed: Bed, mutant: Mutant) -> dict:
    home = Path(tempfile.mkdtemp(dir=bench.directory))
    check = Check(bed.check.reference, bed.check.candidate, bed.check.annotations, bed.check.tolerance)
    try:
        mutant.make(home, check)
        verdict = check.verdict()
    except Refusal as refusal:
        print(f"evaluate: {_name_of(mutant)}: {refusal}", file=sys.stderr)
        verdict = "could-not-look"
    shutil.rmtree(home)
    return {"kind": mutant.kind, "where": mutant.where, "right": sorted(mutant.right), "verdict": verdict}


def summary(rows: list[dict]) -> dict:
    """`silent_passes`: what was called the same and is not."""
    return {
        "mutants": len(rows),
        "mutant_kinds": len({row["kind"] for row in rows}),
        "silent_passes": sum(row["verdict"] == "same" and "same" not in row["right"] for row in rows),
        "other_verdicts": sum(row["verdict"] not in row["right"] and row["verdict"] != "same" for row in rows),
    }


def render(rows: list[dict]) -> list[str]:
    data = summary(rows)
    lines = [
        f"A correct run ({', '.join(dict.fromkeys(row['bed'] for row in rows))}) is changed after the fact in "
        f"{data['mutants']} ways of {data['mutant_kinds']} kinds.",
        "",
        f"**{data['silent_passes']} are called the same though they are not**; {data['other_verdicts']} more get "
        "another verdict than the right one.",
        "",
    ]
    kinds: dict[str, list[dict]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    lines += table(
        ["what was changed", "cases", "right verdict", "same", "different", "could not look", "wrong verdict"],
        [
            [
                kind,
                len(some),
                " or ".join(some[0]["right"]),
                *(sum(row["verdict"] == verdict for row in some) for verdict in VERDICTS.values()),
                sum(row["verdict"] not in row["right"] for row in some),
            ]
            for kind, some in kinds.items()
        ],
    )
    missed = [row for row in rows if row["verdict"] not in row["right"]]
    if missed:
        lines += ["", "What got a wrong verdict:", ""]
        lines += [f"- {row['bed']}: {row['kind']}: {row['where']}: {row['verdict']}" for row in missed]
    return lines
