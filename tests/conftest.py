"""What `tools/test` leaves to the night: tests that are marked `nightly`. Without --nightly they are not run."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true", help="also what `tools/test --nightly` alone runs")


def pytest_configure(config):
    config.addinivalue_line("markers", "nightly: only with --nightly")


@pytest.hookimpl(trylast=True)  # after those that mark
def pytest_collection_modifyitems(config, items):
    if config.getoption("--nightly"):
        return
    kept = [item for item in items if not item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("nightly")])
    items[:] = kept


@pytest.fixture(scope="session")
def nightly(request):
    """True where a test is to try all that it can."""
    return request.config.getoption("--nightly")
