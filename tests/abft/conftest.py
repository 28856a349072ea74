import pytest

from sweeps import warm


@pytest.fixture(scope="session", autouse=True)
def warm_programs():
    with warm.server():
        yield
