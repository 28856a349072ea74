"""An import costs no more than its files' bytes say, and what would cost more is refused at its place."""

import io
import json
import pickle
import time
import zipfile

import numpy
import pytest
import torch
import torch.distributed.checkpoint as torch_checkpoint
from ttrace_import import budget as budgets
from ttrace_import.dcp import _any_overlap

FILES = ("files", "--kind=output", "--")
NESTED_TUPLE = b")" + b"2\x86" * 40  # a pair of a pair of ... the empty tuple: 2^40 elements
TOO_MANY = "nests or repeats its values to more than"


@pytest.fixture(autouse=True)
def in_seconds():
    begin = time.process_time()
    yield
    assert time.process_time() - begin < 40  # 3 s each; without bounds hours


def nested_lists(depth=40):
    value = []
    for _ in range(depth):
        value = [value, value]
    return value


@pytest.fixture
def dcp(tmp_path):
    """Saves a checkpoint and changes its metadata."""
    folder = tmp_path / "dcp"
    state = {"model": {"w": torch.arange(12.0).reshape(3, 4)}}
    torch_checkpoint.save(state, checkpoint_id=str(folder), no_dist=True)
    whole = (folder / ".metadata").read_bytes()

    def change(edit):
        metadata = pickle.loads(whole)
        edit(metadata)
        (folder / ".metadata").write_bytes(pickle.dumps(metadata, protocol=4))

    return change


def test_lists_of_dcp_that_hold_themselves_many_times_are_refused(ttrace, dcp):
    dcp(lambda metadata: metadata.state_dict_metadata["model.w"].__setattr__("size", nested_lists()))
    assert "a list in the place of a size" in ttrace.refuses_to_import("checkpoint", "--", "dcp")
    dcp(lambda metadata: [info.__setattr__("relative_path", nested_lists()) for info in metadata.storage_data.values()])
    assert "names the file a list; expected one beside it" in ttrace.refuses_to_import("checkpoint", "--", "dcp")
    dcp(lambda metadata: metadata.__setattr__("planner_data", {"model.w": (nested_lists(),)}))
    assert "a list in the place of a name" in ttrace.refuses_to_import("checkpoint", "--", "dcp")


def test_nested_tuples_as_keys_are_refused(ttrace, tmp_path):
    (tmp_path / "dcp").mkdir()
    bombs = {
        "key": b"}" + NESTED_TUPLE + b"K\x01s.",
        "key of many": b"}(" + NESTED_TUPLE + b"K\x01u.",
        "in a set": b"c__builtin__\nset\n](" + NESTED_TUPLE + b"e\x85R.",
        # The set's argument is made before what it holds.
        "in a list that grows": b"]q\x00\x85q\x010h\x00(" + NESTED_TUPLE + b"e0c__builtin__\nset\nh\x01R.",
        "of a class": b"ctorch\nSize\n" + NESTED_TUPLE + b"\x85R.",
    }
    for bomb in bombs.values():
        (tmp_path / "dcp" / ".metadata").write_bytes(b"\x80\x04" + bomb)
        text = ttrace.refuses_to_import("checkpoint", "--", "dcp")
        assert text.startswith("dcp/.metadata: ") and (TOO_MANY in text or "code is not run" in text)
        write_pt(tmp_path / "a.pt", b"\x80\x02" + bomb)
        assert TOO_MANY in ttrace.refuses_to_import(*FILES, "a.pt")
        write_old_pt(tmp_path / "old.pt", b"\x80\x02" + bomb)
        assert TOO_MANY in ttrace.refuses_to_import(*FILES, "old.pt")


def write_pt(path, values):
    """A file of torch.save whose values are this pickle."""
    torch.save({}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, values if name.endswith("data.pkl") else content)


def write_old_pt(path, values):
    """The same in the format before PyTorch 1.6."""
    buffer = io.BytesIO()
    torch.save({}, buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    head = [pickle.load(buffer) for _ in range(3)]
    path.write_bytes(b"".join(pickle.dumps(value, 2) for value in head) + values + pickle.dumps([], 2))


def test_whole_numbers_with_one_hash_are_refused(ttrace, tmp_path):
    modulus = (1 << 61) - 1
    torch.save({modulus * number: 0 for number in range(1, 3000)}, tmp_path / "a.pt")
    assert TOO_MANY in ttrace.refuses_to_import(*FILES, "a.pt")
    torch.save({"a": torch.ones(2), "seeds": [(1 << 64) - number for number in range(900)]}, tmp_path / "b.pt")
    ttrace.imports(*FILES, "b.pt")


def test_many_tensors_of_dcp_may_share_a_list_of_chunks(ttrace, dcp):
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

    def share(metadata):
        (info,) = metadata.storage_data.values()
        (entry,) = metadata.state_dict_metadata.values()
        chunks = [ChunkStorageMetadata(torch.Size([n, 0]), torch.Size([1, 4])) for n in range(2_000)]
        entry.chunks, entry.size = chunks, torch.Size([2_000, 4])
        metadata.state_dict_metadata = {f"w{n}": entry for n in range(20)}
        for name in metadata.state_dict_metadata:
            for chunk in chunks:
                metadata.storage_data[MetadataIndex(name, chunk.offsets)] = info

    dcp(share)
    text = ttrace.refuses_to_import("checkpoint", "--", "dcp")
    assert "the chunk of" in text and "expected a tensor of float32 [1, 4]" in text  # the first that is loaded


def test_chunks_that_overlap_are_found_wherever_they_lie():
    grid = [[(i, i + 1), (j, j + 2)] for i in range(60) for j in range(0, 80, 2)]
    assert not _any_overlap(grid)
    for at in (0, 1234, len(grid) - 1):
        assert _any_overlap([*grid, grid[at]])
    wheel = [[(0, 1), (0, 2)], [(0, 2), (2, 3)], [(2, 3), (1, 3)], [(1, 3), (0, 1)], [(1, 2), (1, 2)]]
    assert not _any_overlap(wheel)  # no cut leaves all of these whole
    assert _any_overlap([*wheel[:4], [(1, 3), (1, 2)]])
    assert not _any_overlap([[(0, 1)], [(1, 1)]]) and _any_overlap([[], []])


def test_a_small_file_that_says_large_tensors_is_refused(ttrace, tmp_path):
    torch.save({"w": torch.ones(1).expand(1 << 33)}, tmp_path / "a.pt")
    text = ttrace.refuses_to_import("checkpoint", "--", "a.pt")
    assert text.startswith("a.pt: w: with it the tensors and their names have 3435973")
    many = {f"w{number}": torch.ones(1).expand(1 << 24) for number in range(64)}
    torch.save(many, tmp_path / "b.pt")
    assert "b.pt::w1: with it the tensors" in ttrace.refuses_to_import(*FILES, "b.pt")
    one = torch.arange(100_000.0)
    torch.save([one] * 1_000, tmp_path / "c.pt")
    assert "with it the tensors and their names" in ttrace.refuses_to_import(*FILES, "c.pt")


def test_names_count_as_well(ttrace, tmp_path):
    torch.save({"n" * 1_000_000: [0] * 10_000, "w": torch.ones(1)}, tmp_path / "a.pt")
    text = ttrace.refuses_to_import("checkpoint", "--", "a.pt")
    assert text.startswith("a.pt: ") and "with it the tensors and their names" in text and len(text) < 2000


def test_what_programs_dump_is_within_the_budget(ttrace, tmp_path):
    mask = torch.ones(1, 1, 256, 256, dtype=torch.bool).tril().expand(4, 8, 256, 256)
    weight = torch.randn(64, 32)
    torch.save({"mask": mask, "embedding": weight, "head": weight, "gradient": torch.ones(1).expand(1 << 20)}, "a.pt")
    ttrace.imports(*FILES, "a.pt")
    optimizer = {"state": {number: {"step": 1, "shape": (2, 3)} for number in range(5000)}}
    torch.save({"model": {"w": weight}, "optimizer": optimizer, "rng": [2**63 + 1, 0.5]}, tmp_path / "b.pt")
    ttrace.imports("checkpoint", "--", "b.pt", output="b")


def test_compressed_zeros_are_refused(ttrace, tmp_path):
    numpy.savez_compressed(tmp_path / "a.npz", small=numpy.ones(3), zeros=numpy.zeros(1 << 26, dtype="uint8"))
    text = ttrace.refuses_to_import(*FILES, "a.npz")
    assert text.startswith("a.npz::zeros: with it the tensors")


def test_a_file_that_a_dump_names_many_times_is_refused(ttrace, tmp_path):
    folder = tmp_path / "dump" / "step0" / "rank0"
    (folder / "dump_tensor_data").mkdir(parents=True)
    torch.save(torch.ones(1 << 16), folder / "dump_tensor_data" / "a.pt")
    entry = {"input_args": [{"data_name": "a.pt"}] * 600, "output": []}
    dump = {"task": "tensor", "data": {"Module.x.Linear.forward.0": entry}}
    (folder / "dump.json").write_text(json.dumps(dump))
    text = ttrace.refuses_to_import("msprobe", "--", "dump")
    assert "a.pt: with it the tensors and their names" in text
    entry["input_args"] = [{"n" * 1_000_000: [{"data_name": "a.pt"}] * 3000}]
    (folder / "dump.json").write_text(json.dumps(dump))
    assert "dump.json: with it the tensors" in ttrace.refuses_to_import("msprobe", "--", "dump")


def test_memory_is_bounded_as_well(ttrace, tmp_path):
    # Bytes that are copied again and again: each copy is 4 GB.
    values = b"c__builtin__\nbytearray\nq\x00\x8a\x05\x00\x00\x00\x00\x01\x85Rq\x010"
    write_pt(tmp_path / "a.pt", b"\x80\x02" + values + b"h\x00h\x01\x85R.")
    text = ttrace.refuses_to_import(*FILES, "a.pt")
    assert text.startswith("a.pt: holds more than there is memory for")


def test_what_takes_too_long_is_refused_at_its_place(ttrace, tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "_SECONDS", 0.2)
    monkeypatch.setattr(budgets, "_SECONDS_OF_BYTE", 0)
    torch.save([[0] * 300_000] * 3, tmp_path / "a.pt")
    assert ttrace.refuses_to_import(*FILES, "a.pt").startswith("a.pt: takes more than 0 s of the processor")


def test_a_pickle_is_found_wherever_an_archive_hides_it(ttrace, tmp_path):
    bomb = b"\x80\x02}" + NESTED_TUPLE + b"K\x01s."
    write_pt(tmp_path / "bomb.pt", bomb)
    torch.save({"a": torch.ones(2)}, tmp_path / "plain.pt")
    plain = (tmp_path / "plain.pt").read_bytes()
    (tmp_path / "behind.pt").write_bytes(plain + (tmp_path / "bomb.pt").read_bytes())
    with zipfile.ZipFile(tmp_path / "plain.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "twice.pt", "w") as twice, zipfile.ZipFile(tmp_path / "case.pt", "w") as case:
        for name, content in members.items():
            if name.endswith("data.pkl"):
                twice.writestr(name, bomb)
            twice.writestr(name, content)
            case.writestr(name.replace("data.pkl", "Data.Pkl"), bomb if name.endswith("data.pkl") else content)
    for name in ("behind.pt", "twice.pt", "case.pt"):
        assert TOO_MANY in ttrace.refuses_to_import(*FILES, name)


@pytest.mark.parametrize(
    "opcodes",
    [
        b"Nr\xff\xff\xff\x7f.",  # a place in the memo, whose table would have 16 GB
        b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x8d\x00\x00\x00\x00\x00\x00\x00\x40.",
        b"(\x91" + b"\x94(h\x00h\x00\x91" * 60 + b".",  # sets of sets
        b"}(" + b"".join(b"\x8a\x0a" + ((2**61 - 1) * n).to_bytes(10, "little") + b"N" for n in range(2, 4000)) + b"u.",
    ],
    ids=["memo", "frame", "text", "sets", "hashes"],
)
def test_metadata_that_asks_for_much_is_refused_at_once(ttrace, tmp_path, opcodes):
    (tmp_path / "dcp").mkdir()
    (tmp_path / "dcp" / ".metadata").write_bytes(b"\x80\x04" + opcodes)
    assert ttrace.refuses_to_import("checkpoint", "--", "dcp").startswith("dcp/.metadata: ")
