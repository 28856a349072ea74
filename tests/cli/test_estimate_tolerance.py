"""Runs that do not fit together give no tolerances: each would be too wide, or made of nothing."""

import json

import numpy
import pytest
from conftest import CHECK, changed, model, shards

from traces import bfloat16, record_run

SEEDS = {"p1": 1, "p2": 2, "p3": 3}


def perturbed(seed):
    return changed(model(), "embedding", (0, 0), 1 + seed / 128)


@pytest.fixture
def runs(tmp_path, reference):
    """Makes perturbed runs p1, p2, p3 and an unperturbed rerun, and others by name."""

    def make(name, tensors, seed=None, place=None, **run):
        provenance = {} if seed is None else {"perturb_seed": seed}
        if place is not None:
            provenance["perturb_at"] = place
        return record_run(tmp_path / name, [tensors], provenance=json.dumps(provenance), **run)

    for name, seed in SEEDS.items():
        make(name, perturbed(seed), seed)
    make("again", model())
    return make


def estimate(*perturbed, rerun=None):
    words = ["estimate-tolerance", "-o", "out.yaml", "--reference", "reference", "--perturbed", *perturbed]
    return words + (["--rerun", rerun] if rerun else [])


def test_an_estimate_fits_the_check(ttrace, runs, candidate):
    assert ttrace.reports(*estimate("p1", "p2", "p3", rerun="again"), code=0) == (
        "out.yaml: 4 tolerances from 3 perturbed runs and a rerun, margin 3\n"
        "note: no perturbed run moved layers.0.mlp: it is not fed by what was perturbed, and 1 of its outputs may "
        "differ by what `-t default` allows; --estimator modules perturbs it too\n"
    )
    candidate()
    assert ttrace.reports(*CHECK, "-t", "out.yaml", code=0).startswith("same\n")
    assert ttrace.reports(*CHECK[:-2], "-t", "out.yaml", code=0).startswith("same\n")  # the shapes say enough


ANCHORED = ("estimate-tolerance", "-o", "out.yaml", "--reference", "narrow", "--anchor")


@pytest.fixture
def narrow(runs, tmp_path):
    """A reference in bfloat16, and an anchor for it."""
    runs("narrow", [bfloat16(tensor) for tensor in model()], compute_dtype="bfloat16")
    runs("anchor", perturbed(1))


def check_narrow(tensors, tmp_path):
    rounded = [bfloat16(tensor) for tensor in tensors]
    record_run(tmp_path / "candidate", shards(rounded), axes="tp=2", compute_dtype="bfloat16")
    return ("check", "--reference", "narrow", "--candidate", "candidate", "-a", "a.yaml", "-t", "out.yaml")


def test_one_run_in_a_wider_dtype_stands_for_the_perturbed_ones(ttrace, narrow, tmp_path):
    assert ttrace.reports(*ANCHORED, "anchor", code=0).startswith("out.yaml: 4 tolerances from an anchor, margin 3\n")
    assert "\nanchor: anchor\n" in (tmp_path / "out.yaml").read_text()
    assert ttrace.reports(*check_narrow(model(), tmp_path), code=0).startswith("same\n")


def test_a_candidate_that_is_further_off_than_an_anchor_allows_is_different(ttrace, narrow, tmp_path):
    ttrace.reports(*ANCHORED, "anchor", code=0)
    wrong = check_narrow(changed(model(), "layers.0.mlp", (0, 0), 1.5), tmp_path)
    assert ttrace.reports(*wrong, code=1).startswith("different\nfirst wrong tensor: layers.0.mlp output")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--reference", "reference", "--anchor", "again"],
            "again: computes in 'float32'; expected a wider dtype than 'float32', that of the reference reference",
        ),
        (
            ["--reference", "narrow", "--anchor", "p1"],
            "p1: perturbed with seed 1; expected an unperturbed run as the anchor",
        ),
        (
            ["--reference", "narrow", "--anchor", "narrow"],
            "narrow: holds the same run as narrow (narrow); expected each run once",
        ),
        (
            ["--reference", "narrow", "--anchor", "anchor", "--rerun", "again"],
            "again: computes in 'float32'; expected 'bfloat16', as the reference narrow",
        ),
    ],
)
def test_an_anchor_that_does_not_fit_is_refused(ttrace, narrow, words, message):
    assert ttrace.refuses("estimate-tolerance", "-o", "out.yaml", *words) == message


# what to make, the perturbed runs, the rerun, the error line
REFUSED = {
    "two perturbed runs": (
        None,
        ["p1", "p2"],
        None,
        "2 perturbed runs; expected 3 or more after --perturbed, or a command after -- to collect them",
    ),
    "the same run twice": (None, ["p1", "p2", "p1"], None, "p1: holds the same run as p1 (p1); expected each run once"),
    "the same run under another name": (
        lambda make: make("x", perturbed(4), 4, run_id="p1"),
        ["p1", "p2", "x"],
        None,
        "x: holds the same run as p1 (p1); expected each run once",
    ),
    "the reference as a perturbed run": (
        None,
        ["p1", "p2", "reference"],
        None,
        "reference: holds the same run as reference (reference); expected each run once",
    ),
    "an unperturbed run as a perturbed one": (
        None,
        ["p1", "p2", "again"],
        None,
        "again: not perturbed; expected a run collected with --perturb SEED",
    ),
    "a seed twice": (
        lambda make: make("x", perturbed(4), 2),
        ["p1", "p2", "x"],
        None,
        "x: perturbed with seed 2, as p2 was; expected another seed for each run",
    ),
    "a seed that is none": (
        lambda make: make("x", perturbed(4), "two"),
        ["p1", "p2", "x"],
        None,
        "x: its provenance has a perturb_seed that is no seed; expected an integer from 0",
    ),
    "runs that were perturbed at different places": (
        lambda make: make("x", perturbed(4), 4, "modules"),
        ["p1", "p2", "x"],
        None,
        "x: perturbed at the modules, and p1 at the input; expected runs perturbed alike",
    ),
    "a place that is none": (
        lambda make: make("x", perturbed(4), 4, "weights"),
        ["p1", "p2", "x"],
        None,
        'x: its provenance has a perturb_at "weights"; expected one of input, modules, rewritten',
    ),
    "a perturbed run as the rerun": (
        lambda make: make("x", perturbed(4), 4),
        ["p1", "p2", "p3"],
        "x",
        "x: perturbed with seed 4; expected an unperturbed run as the rerun",
    ),
    "the reference as the rerun": (
        None,
        ["p1", "p2", "p3"],
        "reference",
        "reference: holds the same run as reference (reference); expected each run once",
    ),
    "a run that lacks a tensor": (
        lambda make: make("x", perturbed(4)[:3], 4),
        ["p1", "p2", "x"],
        None,
        "x: layers.0.mlp.weight main_grad, iteration 0: not in the candidate; the reference has float32 [8, 8]; "
        "expected the tensors of the reference",
    ),
    "a run of another size": (
        lambda make: make("x", model(16), 4),
        ["p1", "p2", "x"],
        None,
        "x: layers.0.mlp.weight main_grad, iteration 0: the reference has float32 [8, 8], the candidate float32 "
        "[16, 16] (and 2 more); expected the tensors of the reference",
    ),
    "a run in another dtype": (
        lambda make: make("x", [bfloat16(tensor) for tensor in model()], 4, compute_dtype="bfloat16"),
        ["p1", "p2", "x"],
        None,
        "x: computes in 'bfloat16'; expected 'float32', as the reference reference",
    ),
    "perturbations without effect": (
        lambda make: [make(name, model(), seed) for seed, name in enumerate("xyz", 4)],
        ["x", "y", "z"],
        None,
        "x, and all others: every floating-point tensor equals the reference's: the perturbation had no effect; "
        "expected runs collected with --perturb that reach what is recorded, or else `ttrace check -t default`",
    ),
    "an incomplete run": (
        lambda make: make("x", perturbed(4), 4, complete=False),
        ["p1", "p2", "x"],
        None,
        "x: rank 0 did not finish: no completion mark; only what it recorded until then is there; expected a whole "
        "trace",
    ),
    "a run that is not there": (
        None,
        ["p1", "p2", "x"],
        None,
        "x: No such file or directory; expected a trace: a directory with rank-00000.h5, rank-00001.h5, ...",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_runs_that_do_not_fit_are_refused(ttrace, runs, tmp_path, what):
    make, names, rerun, message = REFUSED[what]
    if make:
        make(runs)
    assert ttrace.refuses(*estimate(*names, rerun=rerun)) == message
    assert not (tmp_path / "out.yaml").exists()


def test_runs_of_another_estimator_than_the_one_asked_for_are_refused(ttrace, runs, tmp_path):
    assert ttrace.refuses(*estimate("p1", "p2", "p3"), "--estimator", "modules") == (
        "--estimator modules: p1 was perturbed at the input; expected runs of that estimator"
    )
    for name, seed in SEEDS.items():
        runs(f"m{name}", perturbed(seed), seed, "modules")
    ttrace.reports(*estimate("mp1", "mp2", "mp3"), "--estimator", "modules", code=0)
    assert "\nestimator: modules\n" in (tmp_path / "out.yaml").read_text()


@pytest.mark.parametrize("factor", [2, 0.5, 1.125])
def test_a_uniform_factor_that_is_not_declared_is_a_finding_and_named(ttrace, runs, candidate, factor):
    ttrace.reports(*estimate("p1", "p2", "p3", rerun="again"), code=0)
    candidate(
        [
            tensor.with_values(tensor.values * numpy.float32(factor)) if tensor.kind == "main_grad" else tensor
            for tensor in model()
        ]
    )
    report = ttrace.reports(*CHECK, "-t", "out.yaml", code=1)
    assert report.startswith("different\nfirst wrong tensor: layers.0.mlp.weight main_grad, iteration 0\n")
    assert f"looks like a factor of {factor:.3f}\n" in report


def test_a_perturbed_reference_is_refused(ttrace, runs):
    words = ["p1" if word == "reference" else word for word in estimate("p2", "p3", "again")]
    assert ttrace.refuses(*words) == "p1: perturbed with seed 1; expected an unperturbed run as the reference"


def test_a_reference_without_a_compute_dtype_is_refused(ttrace, runs, tmp_path):
    for name, seed in {"r": None, **{f"q{i}": i for i in (1, 2, 3)}}.items():
        runs(name, perturbed(seed or 0), seed, compute_dtype="")
    words = ["r" if word == "reference" else word for word in estimate("q1", "q2", "q3")]
    assert ttrace.refuses(*words) == (
        "r: its compute dtype is ''; expected a floating-point one, such as bfloat16: the least that a tensor may "
        "differ by follows from it"
    )


def test_a_place_that_cannot_be_written_is_refused(ttrace, runs):
    words = ["no/out.yaml" if word == "out.yaml" else word for word in estimate("p1", "p2", "p3")]
    assert ttrace.refuses(*words) == "no/out.yaml: cannot be written (No such file or directory); expected a file"
