"""What evidence there is: pages, the commands that write them, and the code that they measure."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Evidence:
    """A page, or a part of one that is measured by itself."""

    name: str  # FOLDER, or FOLDER/PART
    page: str  # this path and those below are of the repository
    command: str  # measures it and writes the page
    sources: tuple[str, ...]  # what it measures, and by what


_VERDICT = (
    *("src/files", "src/load", "src/identify", "src/align", "src/merge", "src/compare"),
    *("src/tolerance", "src/judge"),
)
_RECORDER = ("src/python/ttrace", "src/python/ttrace_torch")
_RUNS = (*_RECORDER, "tools/tinygpt", "tools/laboratory/sweeps")
_TORCHGPT = "tools/torchgpt"
_MUTANTS = ("src/step", "src/report", "mutants", "mutations")
_SKETCHES = ("src/sketch", "tools/frameworks/megatron")
_ERRORS = ("src/tolerance", "src/compare")


def _evaluations() -> list[Evidence]:
    # A source without a folder is a module of the evaluations.
    measured = {
        "bugs": (*_VERDICT, *_RUNS, "src/diagnose", "src/selfcheck", "src/abft", "corpus", "bugs", "detection"),
        "damages": (*_VERDICT, *_RUNS, _TORCHGPT, "src/diagnose", "damages", "damaged"),
        "localization": (*_VERDICT, *_RUNS, "src/diagnose", "corpus", "localization"),
        "false-alarms": (*_VERDICT, *_RUNS, _TORCHGPT, "false_alarms"),
        "mutants": (*_VERDICT, *_RUNS, *_MUTANTS, "faulty_step"),
        "framework-mutants": (*_VERDICT, *_MUTANTS, *_RECORDER, "tools/frameworks", "framework_mutants"),
        "unknown-steps": (*_VERDICT, *_RUNS, "src/step", "unknown_steps", "unknown_step"),
        "sketches": (*_VERDICT, *_RUNS, *_SKETCHES, "corpus", "sketches", "sketched_runs", "sketched_megatron"),
        "rules": (*_VERDICT, *_RUNS, "rules", "peers", "corpus"),
        "depth": (*_ERRORS, *_RUNS, "depth"),
        "bug-errors": (*_ERRORS, *_RUNS, "bug_errors"),
        "sensitivity": (*_VERDICT, *_RUNS, "sensitivity"),
        "cost": (*_VERDICT, *_RUNS, "src/record", "cost"),
    }
    folder = "tools/laboratory/evaluations"
    return [
        Evidence(
            f"evaluations/{name}",
            f"{folder}/RESULTS.md",
            f"tools/evaluate --only {name}",
            tuple(source if "/" in source else f"{folder}/{source}.py" for source in sources),
        )
        for name, sources in measured.items()
    ]


def _reproductions() -> list[Evidence]:
    # A source without a folder is a file of the reproductions.
    measured = {
        "v-abft": ("v_abft_tightness", "v_abft_detection", "v_abft_sensitivity", "calibration", "multiply", "inject"),
        "dlrm": ("dlrm", "embedding_bag", "multiply"),
        "attnchecker": ("src/selfcheck", "attnchecker", "attention", "extreme"),
        "sdc-llm": ("src/sdc", "sdc_llm", "multiply", "inject"),
    }
    folder = "tools/laboratory/reproductions"
    return [
        Evidence(
            f"reproductions/{paper}",
            f"{folder}/RESULTS.md",
            f"tools/reproduce {paper}",
            ("src/abft", *(source if "/" in source else f"{folder}/{source}.cpp" for source in sources)),
        )
        for paper, sources in measured.items()
    ]


def _papers() -> list[Evidence]:
    # A source without a folder is a module of the papers' further measurements.
    measured = {
        "table-3": ("src/compare", *_RUNS, "loosest_bound"),
        "e-max": ("e_max",),
        "real-weights": ("src/abft", "real_weights"),
        "faults": ("src/abft", "src/sdc", "faults", "faulty_trace"),
        "models": ("models", "faulty_trace"),
        "near-infinity": ("near_infinity", "gpu_norm", "models", "recovery", "faulty_trace"),
        "recovery": ("recovery", "extreme", "gpu_norm", "models", "faulty_trace"),
        "restart": ("restart", "recovery", "extreme", "models", "faulty_trace"),
        "frequencies": ("frequencies",),
        "node": ("src/sdc", *_RUNS, "node", "unhealthy", "faulty_trace"),
    }
    folder = "tools/laboratory/papers"
    return [
        Evidence(
            f"papers/{name}",
            f"{folder}/RESULTS.md",
            f"tools/papers {name}",
            tuple(source if "/" in source else f"{folder}/{source}.py" for source in sources),
        )
        for name, sources in measured.items()
    ] + [
        Evidence(
            "papers/claims",
            f"{folder}/CLAIMS.md",
            "tools/papers claims",
            (f"{folder}/claims.yaml", f"{folder}/claims.py"),
        )
    ]


def _frameworks() -> list[Evidence]:
    """The trials of a framework have a folder of its name, but for programs with a bug of a released package."""
    folder, found = "tools/frameworks", "tools/laboratory/found"
    names = sorted(path.parent.name for path in (ROOT / folder).glob("*/README.md"))
    folders = {name: f"{folder}/{name}" for name in names} | {"found": found}
    return [
        Evidence(
            f"frameworks/{name}",
            f"{folder}/RESULTS.md",
            f"tools/frameworks/run --only {name}/",
            (*_VERDICT, *_RECORDER, f"{folder}/trials.py", trials),
        )
        for name, trials in folders.items()
    ]


EVIDENCE = [
    *_evaluations(),
    Evidence(
        "drawn",
        "tools/laboratory/evaluations/DRAWN.md",
        "tools/laboratory/draw --discard",
        (*_VERDICT, *_RUNS, "tools/laboratory/evaluations/drawn.py"),
    ),
    Evidence(
        "anchor",
        "tools/laboratory/evaluations/ANCHOR.md",
        "tools/laboratory/anchor",
        (*_VERDICT, *_RUNS, "tools/laboratory/evaluations/anchor.py"),
    ),
    Evidence(
        "right-products",
        "tools/laboratory/evaluations/RIGHT_PRODUCTS.md",
        "tools/laboratory/right-products",
        ("src/abft", "src/selfcheck", "tools/laboratory/evaluations/right_products.py"),
    ),
    Evidence(
        "watching",
        "tools/laboratory/evaluations/WATCHING.md",
        "tools/laboratory/watching",
        (
            *("src/workflow", "src/selfcheck", "src/abft", "src/step", *_RECORDER),
            "tools/laboratory/evaluations/watching.py",
        ),
    ),
    Evidence(
        "costs",
        "tools/laboratory/evaluations/COSTS.md",
        "tools/laboratory/costs",
        (
            *(*_RECORDER, "src/record", "src/sketch", "src/capi", "tools/tinygpt", _TORCHGPT),
            *("tools/laboratory/benchmarks/collect.py", "tools/laboratory/evaluations/costs.py"),
            *("tools/laboratory/benchmarks/launches.py", "tools/laboratory/benchmarks/launched"),
        ),
    ),
    Evidence("sweeps", "tools/laboratory/sweeps/RESULTS.md", "tools/sweep", (*_VERDICT, *_RUNS, _TORCHGPT)),
    *_reproductions(),
    *_papers(),
    *_frameworks(),
    Evidence(
        "programs",
        "tools/laboratory/programs/RESULTS.md",
        "tools/programs",
        (*_VERDICT, *_RECORDER, "tools/laboratory/programs", "tests/programs/kinds"),
    ),
    Evidence(
        "outside",
        "tools/laboratory/programs/OUTSIDE.md",
        "tools/programs 'outside/*'",
        (*_VERDICT, *_RECORDER, "tools/laboratory/programs"),
    ),
    Evidence(
        "public",
        "tools/laboratory/programs/PUBLIC.md",
        "tools/programs 'public/*'",
        (*_VERDICT, "src/diagnose", *_RECORDER, "tools/laboratory/programs", "tools/frameworks/megatron"),
    ),
    Evidence(
        "causes",
        "tools/laboratory/causes/RESULTS.md",
        "tools/causes",
        (*_VERDICT, "src/diagnose", "src/step", *_RECORDER, "tools/laboratory/causes"),
    ),
    Evidence(
        "versions",
        "tools/laboratory/versions/RESULTS.md",
        "tools/versions",
        (*_VERDICT, *_RECORDER, "tools/laboratory/versions"),
    ),
    Evidence(
        "hunting",
        "tools/laboratory/hunting/RESULTS.md",
        "tools/hunt",
        (*_VERDICT, *_RECORDER, "tools/laboratory/hunting", "tools/laboratory/found"),
    ),
]

# What measuring writes: no part of the source that is measured.
PUBLISHED = [
    *sorted({evidence.page for evidence in EVIDENCE}),
    "tools/laboratory/evaluations/figures",
    "tools/frameworks/rows.json",
    "tools/laboratory/causes/rows.json",
    "tools/laboratory/programs/rows.json",
    "tools/laboratory/versions/rows.json",
]
