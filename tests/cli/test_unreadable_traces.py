"""A trace that cannot be what a recorder left is refused with one line; nothing in it is believed."""

import os
import re
import shutil
import struct

import h5py
import numpy
import pytest
from conftest import CHECK, model, shards

from traces import edit_index, record_rank, record_run, seal_again

RANK = "candidate/rank-00001.h5"


@pytest.fixture
def refused(ttrace, reference, candidate, tmp_path):
    """Spoils rank 1 of a good candidate and returns the error line."""

    def refuse(spoil):
        candidate()
        spoil(tmp_path / RANK)
        return ttrace.refuses(*CHECK)

    return refuse


def overwrite(offset, data):
    def spoil(path):
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(data)

    return spoil


def foreign_hdf5(path):
    with h5py.File(path, "w") as file:
        file["x"] = numpy.zeros(10_000)


def become_directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_missing_directory_is_named(ttrace, reference, candidate, side):
    candidate()
    command = [f"no-{side}" if word == side else word for word in CHECK]
    assert ttrace.refuses(*command) == (
        f"no-{side}: No such file or directory; expected a trace: a directory with rank-00000.h5, rank-00001.h5, ..."
    )


def test_an_empty_directory_is_no_trace(ttrace, reference, tmp_path):
    (tmp_path / "candidate").mkdir()
    assert ttrace.refuses(*CHECK) == (
        "candidate: no rank's file in it; expected a trace: rank-00000.h5, rank-00001.h5, ..."
    )


def test_a_file_is_no_trace(ttrace, reference, tmp_path):
    (tmp_path / "candidate").write_text("")
    assert ttrace.refuses(*CHECK) == (
        "candidate: a file that is not known; expected the directory of a trace, or of what others saved, or a file "
        "with a name in .safetensors, .npz, .npy, .pt, .pth, .bin or .ckpt"
    )


SPOILT = {
    "text": (lambda path: path.write_text("rank 1\n" * 2000), "not an HDF5 file; expected one written by ttrace"),
    "empty": (lambda path: path.write_bytes(b""), "not an HDF5 file; expected one written by ttrace"),
    "another program's HDF5": (foreign_hdf5, "an HDF5 file, but not a trace; expected one written by ttrace"),
    "a directory": (become_directory, "not a regular file; expected a readable file"),
    "a later version": (overwrite(72, struct.pack("<I", 2)), "trace format version 2; this ttrace reads version 1"),
    "a changed header": (
        overwrite(4000, b"x"),
        "the metadata is damaged: its checksum differs; expected the file as it was recorded",
    ),
    "an index changed after sealing": (
        lambda path: edit_index(path, 1, offset=1 << 40),
        "the metadata is damaged: its checksum differs; expected the file as it was recorded",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_file_that_is_no_rank_s_is_refused(refused, what):
    spoil, message = SPOILT[what]
    assert refused(spoil) == f"{RANK}: {message}"


@pytest.mark.parametrize("part", [0.0, 0.1, 0.27, 0.3, 0.5, 0.99])
def test_a_truncated_file_is_called_truncated(refused, tmp_path, part):
    sizes = []

    def truncate(path):
        sizes.extend([path.stat().st_size, 8 + int(part * path.stat().st_size)])
        os.truncate(path, sizes[1])

    message = refused(truncate)
    whole, left = sizes
    assert message == f"{RANK}: " + (
        f"truncated to {left} bytes; expected the file as it was recorded"
        if left < 4096
        else f"truncated: has {left} bytes; expected {whole}"
    )


def test_one_byte_less_or_more_is_noticed(refused):
    sizes = []

    def cut(path):
        sizes.append(path.stat().st_size)
        os.truncate(path, sizes[0] - 1)

    assert refused(cut) == f"{RANK}: truncated: has {sizes[0] - 1} bytes; expected {sizes[0]}"


def test_trailing_bytes_are_noticed(refused):
    sizes = []

    def grow(path):
        sizes.append(path.stat().st_size)
        os.truncate(path, sizes[0] + 1)

    assert refused(grow) == f"{RANK}: has {sizes[0] + 1} bytes; expected {sizes[0]}"


LIES = {
    "points outside the file": (
        {"offset": 1 << 40},
        "128 bytes at 1099511627776 lie outside the tensor data; expected them between 4096 and 4480",
    ),
    "points outside any file": (
        {"offset": (1 << 64) - 64},
        "128 bytes at 18446744073709551552 lie outside the tensor data; expected them between 4096 and 4480",
    ),
    "claims an absurd size": (
        {"bytes": 1 << 62},
        "4611686018427387904 bytes for shape [4, 8] of float32; expected 128",
    ),
    "claims a shape beyond the table": (
        {"shape": 1 << 60},
        "its name, shape or mapping lies outside the tables; expected it inside",
    ),
    "claims a name beyond the table": (
        {"name_length": 1 << 31},
        "its name, shape or mapping lies outside the tables; expected it inside",
    ),
    "claims an unknown dtype": ({"dtype": 77}, "dtype is out of range; expected 1 to 12"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_under_a_good_seal_is_refused(refused, lie):
    fields, message = LIES[lie]

    def spoil(path):
        edit_index(path, 1, **fields)
        seal_again(path)

    assert refused(spoil) == f"{RANK}: tensor 1 of the index: {message}"


def test_a_mapping_that_the_recorder_would_not_have_taken_is_refused(refused):
    # The name of a tensor stands where its mapping should be.
    def spoil(path):
        edit_index(path, 1, mapping=0, mapping_length=5)
        seal_again(path)

    assert refused(spoil) == f"{RANK}: tensor 1 of the index: mapping: does not parse; expected a JSON object"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_metadata_that_hdf5_cannot_read_under_a_good_seal_is_not_given_to_hdf5(ttrace, reference, candidate, number):
    # HDF5 crashes or loops on some files that are made to do so; ttrace needs none of its metadata.
    path = candidate() / "rank-00001.h5"
    data = bytearray(path.read_bytes())
    # The datasets under /ttrace are the last to be described.
    headers = [match.start() for match in re.finditer(b"OHDR", data)]
    data[headers[-number] + 7] ^= 0xFF
    path.write_bytes(data)
    seal_again(path)
    assert ttrace.reports(*CHECK, code=0).startswith("same\n")


SEAL_LIES = {
    "run": (96, "/ttrace/run"),
    "index": (112, "/ttrace/index"),
    "text": (128, "/ttrace/text"),
    "shapes": (144, "/ttrace/shapes"),
}


@pytest.mark.parametrize("table", SEAL_LIES)
def test_a_seal_that_leads_outside_the_file_is_refused(refused, table):
    place, name = SEAL_LIES[table]

    def spoil(path):
        overwrite(place, struct.pack("<Q", 1 << 40))(path)
        seal_again(path)

    message = refused(spoil)
    assert message.startswith(f"{RANK}: {name} with ")
    assert " bytes at 1099511627776 does not fit; expected it between 4480 and " in message


def test_a_file_edited_without_a_lie_and_sealed_again_is_accepted(ttrace, reference, candidate):
    # So that what the tests above refuse is the lie, not the edit.
    path = candidate() / "rank-00001.h5"
    edit_index(path, 1, module_length=0)
    seal_again(path)
    assert ttrace.reports(*CHECK, code=0).startswith("same\n")


def test_a_bit_of_data_that_flipped_on_disk_is_refused(ttrace, reference, candidate):
    path = candidate() / "rank-00001.h5"
    data = bytearray(path.read_bytes())
    at = data.index(shards(model())[1][0].values.tobytes())
    data[at] ^= 1  # the lowest bit of a value's fraction: no tolerance would see it
    path.write_bytes(data)

    message = ttrace.refuses(*CHECK, "-t", "t.yaml")
    assert message.startswith(f"{RANK}: embedding output, iteration 0, micro-batch 0: its bytes are not those that ")
    assert message.endswith("of an undamaged file (`ttrace inspect --verify` lists all that is damaged)")
    assert ttrace.reports(*CHECK, "-t", "t.yaml", "--no-checksums", code=0).startswith("same\n")


OTHERS = {
    "another run": (dict(world_size=2, run_id="other"), "run id other, but rank-00000.h5 has candidate"),
    "a larger run": (dict(world_size=4, run_id="candidate"), "world size 4, but rank-00000.h5 has 2"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_rank_of_another_run_is_refused(refused, tmp_path, what):
    run, message = OTHERS[what]
    other = record_run(
        tmp_path / "other", shards(model(), run["world_size"]), axes=f"tp={run['world_size']}", run_id=run["run_id"]
    )

    assert refused(lambda path: shutil.copy(other / path.name, path)) == (
        f"{RANK}: {message}; expected the files of one run"
    )


def test_control_characters_in_a_path_do_not_break_the_line(ttrace, reference):
    assert ttrace.refuses("check", "--reference", "reference", "--candidate", "a\nb") == (
        "a\\x0ab: No such file or directory; expected a trace: a directory with rank-00000.h5, rank-00001.h5, ..."
    )


@pytest.mark.parametrize("options", [(), ("--stats",), ("--verify",), ("--json",)])
def test_inspect_refuses_what_check_refuses(ttrace, candidate, tmp_path, options):
    candidate()
    (tmp_path / RANK).write_text("rank 1\n" * 2000)
    assert (
        ttrace.refuses("inspect", *options, "candidate") == f"{RANK}: not an HDF5 file; expected one written by ttrace"
    )


def test_two_ranks_in_one_place_are_refused(ttrace, reference, tmp_path):
    for rank in range(2):
        record_rank(
            tmp_path / "candidate",
            shards(model())[rank],
            rank=rank,
            world_size=2,
            run_id="run",
            axes="tp=2",
            coordinates="tp=1",
        )
    assert ttrace.refuses(*CHECK) == (
        "candidate: ranks 0 and 1 have the same coordinates [1]; expected each place once"
    )
