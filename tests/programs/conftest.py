import pytest

from sweeps import warm

# What `tools/test` runs of the first verdicts: the kinds of programs that were called different at the first try when
# ttrace met programs nobody had tuned it for, each with its wrong twins. All others run at night.
OF_EVERY_PUSH = [
    "auxiliary",
    "buffers",
    "by_hand",
    "forces",
    "frozen",
    "gathered",
    "graphs",
    "local_experts",
    "own_numbers",
    "owned",
    "packed",
    "padded",
    "parametrized",
    "parts",
    "rehearsal",
    "sampler",
    "samples_by_hand",
    "two_models",
    "views",
    "wrapped",
]


@pytest.hookimpl(tryfirst=True)  # before those of the night are left out
def pytest_collection_modifyitems(items):
    for item in items:
        program = item.callspec.params.get("program") if hasattr(item, "callspec") else None
        if item.path.name == "test_first_verdicts.py" and program and program[0] not in OF_EVERY_PUSH:
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(scope="module", autouse=True)
def warm_programs():
    with warm.server():
        yield
