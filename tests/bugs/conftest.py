"""Runs the real program on real ranks: collect, estimate-tolerance, check, as a user types them."""

import pytest

from sweeps import warm
from sweeps.runs import References


@pytest.fixture(scope="session", autouse=True)
def warm_programs():
    with warm.server():
        yield


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def references(directory):
    return References(directory)
