"""Silent bugs of PyTorch that others reported: found where they are made, and not where they are mended. The others of
tools/laboratory/programs/public.txt need packages that tests do without."""

import sys
from pathlib import Path

import pytest

from programs import runs
from programs.page import Judged
from programs.table import PUBLIC_TABLE, public


@pytest.mark.parametrize("name", ["partial_to_local", "norm_of_parts", "parallel_log_softmax"])
def test_a_reported_bug_is_found_where_it_is_made_and_its_mended_twin_is_the_same(name, tmp_path):
    (program,) = (each for each in public(PUBLIC_TABLE.read_text()) if each.name == f"public/{name}")
    row = runs.measured(program, Path(sys.executable), tmp_path)
    judged = Judged(program, row)
    assert (judged.correct, judged.wrong) == ("same", "different at the right tensor"), row
