"""Cases of a test that `tools/test` leaves to the night."""

import pytest


def at_night(*cases):
    """Those of one name are its values, those of several are tuples of theirs."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=pytest.mark.nightly) for case in values]
