"""How a program's ranks are arranged: what frameworks say is used, and what nobody says can be said when the trace is
checked. No job is run for nothing."""

import json

import pytest
from conftest import TTRACE, program, ranks, run

from ttrace_torch.adapters.averaging import Averaging, words_of
from ttrace_torch.factoring import Group, factoring
from ttrace_torch.mesh_position import MeshPosition

pytestmark = pytest.mark.usefixtures("warm_programs")


def check(reference, candidate, *options):
    return run([TTRACE, "check", "--reference", reference.directory, "--candidate", candidate.directory, *options])


def said(collected, rank=0):
    return json.loads(collected.rank(rank).attributes["provenance"]).get("parallelism")


# With a micro-batch on each of two ranks nothing is added up in another order: every bit is the same.
RANKS = program("ranks")[-1]


@pytest.fixture
def reference(collect):
    return collect(command=program("ranks", "--microbatches", "2"))


@pytest.fixture
def two_ranks(collect):
    return lambda *options: collect(command=ranks(2, RANKS, "--microbatches", "2", *options))


def test_a_run_that_says_nothing_is_recorded_and_its_axes_are_said_when_it_is_checked(reference, two_ranks):
    candidate = two_ranks()
    assert (reference.code, candidate.code) == (0, 0), candidate
    assert candidate.messages[1] == (
        "ttrace: nothing says how the 2 ranks are arranged: say it when the trace is checked, as in `ttrace check "
        "--axes dp=2`"
    )
    assert candidate.rank(1).attributes["axes"] == "[]"

    told = check(reference, candidate)
    assert told.returncode == 0, told.stdout
    assert "note: candidate: nothing says how its ranks are arranged; taken as --axes dp=2: " in told.stdout
    refused = check(candidate, reference)  # a reference of two ranks has nothing that its bytes could be held against
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"ttrace: error: {candidate.directory}: nothing says how its 2 ranks are arranged; expected --axes, as in "
        "--axes dp=2, or `parallelism: {axes: dp=2}` in the annotations\n"
    )
    checked = check(reference, candidate, "--axes", "dp=2")
    assert checked.returncode == 0, checked.stdout
    assert "0 fail, 0 untrusted; 0 missing" in checked.stdout

    file = candidate.directory.parent / "annotations.yaml"
    file.write_text("parallelism: {axes: dp=2}\n")
    assert check(reference, candidate, "-a", file).returncode == 0
    file.write_text("parallelism: {axes: tp=2}\n")
    asked = check(reference, candidate, "-a", file)  # two micro-batches are no copies of one, and training is right
    assert asked.returncode == 2 and "Nothing says which is which" in asked.stdout, asked.stdout
    assert check(reference, candidate, "-a", file, "--axes", "dp=2").returncode == 0


def test_ddp_says_the_axis_and_that_it_averages(reference, two_ranks):
    candidate = two_ranks("--ddp")
    assert candidate.code == 0, candidate
    assert len(candidate.messages) == 1
    assert candidate.rank(1).attributes["axes"] == '[["dp",2]]'
    assert candidate.rank(1).attributes["coordinates"] == '{"dp":1}'
    assert said(candidate) == said(candidate, 1) == {"loss_scale": "dp"}
    checked = check(reference, candidate)
    assert checked.returncode == 0, checked.stdout
    assert 'note: candidate: as the program says: loss_scale: "dp"' in checked.stdout
    assert "0 fail, 0 untrusted; 0 missing" in checked.stdout

    refused = check(reference, candidate, "--axes", "tp=2")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"ttrace: error: --axes: tp=2; {candidate.directory} recorded dp=2; expected axes that only add to these\n"
    )
    assert check(reference, candidate, "--axes", "dp=2,fsdp=dp").returncode == 0


def test_a_communication_hook_of_the_programs_own_is_noted_and_its_scale_can_be_said(reference, two_ranks):
    candidate = two_ranks("--ddp", "--comm-hook")
    assert said(candidate) == {"loss_scale": "unknown"}
    checked = check(reference, candidate)
    assert checked.returncode == 0, checked.stdout
    note = (
        "note: candidate: the program divides the gradients that it adds up by what nobody knows (a communication hook"
    )
    assert note in checked.stdout
    file = candidate.directory.parent / "annotations.yaml"
    file.write_text("parallelism: {loss_scale: 1}\n")
    checked = check(reference, candidate, "-a", file)
    assert (checked.returncode, "by what nobody knows" in checked.stdout) == (0, False)


def test_the_finest_axes_that_all_groups_are_made_of():
    def axes(size, **groups):
        return factoring([Group(name, tuple(ranks)) for name, ranks in groups.items()], size)

    assert axes(4, dp=range(4)) == "dp=4"
    assert axes(4, dp=(0, 2), tp=(0, 1)) == axes(4, dp=(1, 3), tp=(2, 3)) == "tp=2,dp=2"
    assert axes(4, batch=range(4), tp=(0, 1)) == "tp=2,batch=2"  # what the other axes leave of it
    many = {"pp": (0, 4), "batch": (0, 2), "cp": (0, 1), "fsdp": range(4), "tp": (0,), "loss": range(4)}
    assert axes(8, **many) == "cp=2,batch=2,pp=2,tp=1"
    assert axes(4, dp_shard=(0, 1), fsdp=(0, 1), dp_replicate=(0, 2)) == "dp_shard=2,dp_replicate=2,fsdp=dp_shard"
    assert axes(6, tp=(0, 1), dp=(0, 2, 4), ep=(0, 1, 2), edp=(0, 3)) == "tp=2,dp=3/ep=3,edp=2"
    experts = {"dp_replicate": (0, 4), "efsdp": (0, 2), "ep": (0, 1)}
    assert axes(8, fsdp=range(4), **experts) == "fsdp=4,dp_replicate=2/ep=2,efsdp=2,dp_replicate=2"


def test_ranks_that_two_factorings_join_lie_along_the_axis_of_their_name():
    position = MeshPosition(0, 4, "tp=2,fsdp=2/ep=2,efsdp=2", "")
    assert position.axes_joining([0, 1]) == position.axes_joining([0, 1], "tp") == [("tp", 2)]
    assert position.axes_joining([0, 1], "ep") == [("ep", 2)]
    assert position.axes_joining([0, 1, 2, 3], "ep") == [("fsdp", 2), ("tp", 2)]
    assert position.axes_joining([0, 3], "ep") == []


def test_the_outermost_part_of_a_model_says_by_how_much_gradients_are_averaged():
    position = MeshPosition(0, 8, "tp=2,fsdp=4,dp=fsdp/ep=4,efsdp=2", "")
    whole = Averaging([(0, 2, 4, 6)], 4)
    for experts in (Averaging([(0, 4)], 4), Averaging([(0, 4)], 2), Averaging([(0,)], 4)):  # the second is a bug
        assert words_of([whole, experts], position) == {"loss_scale": "fsdp"}
    assert words_of([Averaging([(0,)], 4)], position) == {}
    assert words_of([whole, Averaging([(0, 3)], 4)], position) == {}


def test_groups_that_do_not_say_it_all_say_nothing():
    for groups in [{}, {"dp": (0, 1)}, {"dp": (0, 3)}, {"dp": (1, 2)}, {"dp": (2, 0)}, {"dp": (0, 2), "": (0, 1)}]:
        assert factoring([Group(name, ranks) for name, ranks in groups.items()], 4) is None


@pytest.mark.parametrize(
    ("schedule", "divide"),
    [("1F1B", ["--divide-loss"]), ("1F1B", []), ("Interleaved1F1B", []), ("ZBVZeroBubble", ["--divide-loss"])],
)
def test_stages_of_a_pipeline_keep_the_names_of_the_whole_model(collect, schedule, divide):
    reference = collect(command=program("pipeline"))
    candidate = collect(command=ranks(2, program("pipeline")[-1], "--schedule", schedule, *divide))
    assert (reference.code, candidate.code) == (0, 0), candidate
    assert candidate.rank(1).attributes["axes"] == '[["pp",2]]'
    words = {"names": "global"} if schedule[:3] != "ZBV" else {"names": "global", "chunks": "v"}
    scale = {} if divide else {"loss_scale": "4"}  # then the schedule divides the gradients at the end
    assert said(candidate, 1) == {"pipeline": words, **scale}
    checked = check(reference, candidate)
    assert checked.returncode == 0, checked.stdout
    assert "0 fail, 0 untrusted; 0 missing" in checked.stdout
