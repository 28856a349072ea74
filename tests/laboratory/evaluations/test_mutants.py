"""A right run of which one tensor is changed after the fact is *different*: nothing else is wrong in it, which is how
legal causes of a difference look, too."""

from itertools import chain

from evaluations import mutants
from evaluations.bench import Bench

CHANGES = {"halved", "noise as large as the value", "one Inf", "zero"}


def test_no_tensor_that_is_changed_alone_passes_or_is_a_question(tmp_path):
    _, configuration = mutants.BEDS
    bench = Bench(tmp_path, quick=True, case="")
    bench.prepare([(configuration.model, configuration.dtype)])
    bed = mutants.Bed(mutants.check_of(bench.run(configuration)))
    values = (each for each in mutants.values(bed) if each.kind.split(": ")[1] in CHANGES)
    made = chain(values, mutants.small_differences_between_copies(bed), mutants.structure(bed))
    rows = mutants.judged(bench, configuration.name, bed, made)
    assert len(rows) > 100
    assert not [row for row in rows if row["verdict"] not in row["right"]]
