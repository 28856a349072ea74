"""Files from anybody: one line and exit code 2, no code that runs, nothing left behind."""

import io
import json
import os
import pathlib
import pickle
import struct
import zipfile

import numpy
import pytest
import torch
from safetensors.torch import save_file

FILES = ("files", "--kind=output", "--")


class Code:
    """A pickle that makes a file where it is read."""

    def __init__(self, path):
        self._path = str(path)

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self._path),)


@pytest.fixture
def marker(tmp_path):
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


def test_a_pickle_with_code_is_not_run(ttrace, tmp_path, marker):
    torch.save({"a": torch.ones(2), "b": Code(marker)}, tmp_path / "new.pt")
    torch.save([Code(marker)], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "plain.bin").write_bytes(pickle.dumps(Code(marker)))
    numpy.savez(tmp_path / "objects.npz", a=numpy.array([Code(marker)], dtype=object))
    numpy.save(tmp_path / "objects.npy", numpy.array([Code(marker)], dtype=object), allow_pickle=True)
    for name in ("new.pt", "old.pt", "plain.bin", "objects.npz", "objects.npy"):
        assert ttrace.refuses_to_import(*FILES, name).startswith(name)
    assert ttrace.refuses_to_import("checkpoint", "--", "new.pt").startswith(
        "new.pt: holds objects that are no tensors ("
    )


def test_metadata_of_dcp_with_code_is_not_run(ttrace, tmp_path, marker):
    folder = tmp_path / "dcp"
    folder.mkdir()
    for content in (Code(marker), {"state_dict_metadata": Code(marker)}):
        for protocol in (2, 4):
            (folder / ".metadata").write_bytes(pickle.dumps(content, protocol))
            assert "and code is not run" in ttrace.refuses_to_import("checkpoint", "--", "dcp")


def test_metadata_of_dcp_that_lies_is_refused(ttrace, tmp_path):
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        BytesStorageMetadata,
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    folder = tmp_path / "dcp"
    folder.mkdir()
    buffer = io.BytesIO()
    torch.save(torch.ones(2, 3), buffer)
    (folder / "data").write_bytes(buffer.getvalue())
    torch.save(torch.ones(2, 3), tmp_path / "outside")
    size = len(buffer.getvalue())

    def lie(
        shape=(2, 3), chunk=(2, 3), start=(0, 0), file="data", offset=0, length=size, entry=None, dtype=torch.float32
    ):
        stored = TensorStorageMetadata(
            TensorProperties(dtype), torch.Size(shape), [ChunkStorageMetadata(torch.Size(start), torch.Size(chunk))]
        )
        places = {MetadataIndex("w", torch.Size(start)): _StorageInfo(file, offset, length)}
        metadata = Metadata({"w": entry or stored}, planner_data=None, storage_data=places)
        (folder / ".metadata").write_bytes(pickle.dumps(metadata))
        return ttrace.refuses_to_import("checkpoint", "--", "dcp")

    for file in ("../outside", str(tmp_path / "outside"), "", ".."):
        assert "expected one beside it" in lie(file=file)
    assert "No such file" in lie(file="nothing")
    assert "truncated" in lie(length=size + 1)
    assert "truncated" in lie(offset=1 << 39)
    assert "each part once" in lie(shape=(4, 3))
    assert "each part once" in lie(start=(1, 0))
    assert "expected a tensor of float32 [3, 2]" in lie(shape=(3, 2), chunk=(3, 2))
    assert "expected a tensor of float64" in lie(dtype=torch.float64)
    assert "with it the tensors and their names have" in lie(shape=(1 << 40, 3), chunk=(1 << 40, 3))
    assert "expected a whole" in lie(length=size - 7) or "expected a tensor" in lie(length=size - 7)
    assert "expected metadata of DCP" in lie(shape=(-2, 3))
    assert "no parameter" in lie(entry=BytesStorageMetadata())
    whole = (folder / ".metadata").read_bytes()
    for end in range(0, len(whole), 37):
        (folder / ".metadata").write_bytes(whole[:end])
        assert "expected metadata of DCP" in ttrace.refuses_to_import("checkpoint", "--", "dcp")


@pytest.mark.parametrize("suffix", [".pt", ".npz", ".npy", ".safetensors"])
def test_a_truncated_file_is_refused(ttrace, tmp_path, suffix):
    path = tmp_path / f"dump{suffix}"
    tensors = {"a": torch.arange(100.0), "b": torch.ones(3)}
    if suffix == ".pt":
        torch.save(tensors, path)
    elif suffix == ".safetensors":
        save_file(tensors, path)
    elif suffix == ".npz":
        numpy.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    else:
        numpy.save(path, tensors["a"].numpy())
    whole = path.read_bytes()
    for end in (0, 1, 7, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert ttrace.refuses_to_import(*FILES, path.name).startswith(f"{path.name}: ")


def test_absurd_sizes_are_refused(ttrace, tmp_path):
    torch.save(torch.zeros(1).expand(1 << 45), tmp_path / "a.pt")  # four bytes that say they are 128 TiB
    assert "with it the tensors and their names have 14073748835" in ttrace.refuses_to_import(*FILES, "a.pt")
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    (tmp_path / "b.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (tmp_path / "c.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + header)
    for name in ("b.safetensors", "c.safetensors"):
        assert ttrace.refuses_to_import(*FILES, name).startswith(name)
    lying = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(lying, {"descr": "<f4", "fortran_order": False, "shape": (1 << 45,)})
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("a.npy", lying.getvalue() + bytes(16))
    assert "says shape (35184372088832,)" in ttrace.refuses_to_import(*FILES, "d.npz")
    (tmp_path / "e.npy").write_bytes(lying.getvalue() + bytes(16))
    assert ttrace.refuses_to_import(*FILES, "e.npy").startswith("e.npy: ")


def test_a_compressed_pt_is_refused(ttrace, tmp_path):
    torch.save({"a": torch.zeros(1 << 16)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "bomb.pt", "w", 8) as bomb:
        for member in plain.namelist():
            bomb.writestr(member, plain.read(member), compress_type=zipfile.ZIP_DEFLATED)
    assert "compressed members" in ttrace.refuses_to_import(*FILES, "bomb.pt")


def test_values_that_hold_themselves_or_too_many_are_refused(ttrace, tmp_path):
    loop = [torch.ones(2)]
    loop.append(loop)
    torch.save(loop, tmp_path / "loop.pt")
    assert "nests them too deep" in ttrace.refuses_to_import(*FILES, "loop.pt")
    laughs = []
    for _ in range(30):
        laughs = [laughs, laughs]
    torch.save(laughs, tmp_path / "laughs.pt")
    assert "entries" in ttrace.refuses_to_import(*FILES, "laughs.pt")


@pytest.mark.parametrize("what", ["link", "link to a folder", "pipe", "link to a device"])
def test_what_is_no_regular_file_is_refused(ttrace, tmp_path, what):
    folder = tmp_path / "dump"
    folder.mkdir()
    torch.save(torch.ones(2), tmp_path / "outside.pt")
    path = folder / "a.pt"
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"link": "../outside.pt", "link to a folder": "..", "link to a device": "/dev/zero"}[what])
    text = ttrace.refuses_to_import(*FILES, "dump")
    assert text.startswith("dump/a.pt: ") and "a regular file" in text
    if what == "pipe":
        assert "not a regular file" in ttrace.refuses_to_import(*FILES, "dump/a.pt")
        assert "not a regular file" in ttrace.refuses_to_import("checkpoint", "--", "dump/a.pt")


def test_an_index_names_files_beside_it_only(ttrace, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, tmp_path / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    for file in ("../outside.safetensors", str(tmp_path / "outside.safetensors"), "", ".."):
        index.write_text(json.dumps({"weight_map": {"a": file}}))
        assert "model.safetensors.index.json" in ttrace.refuses_to_import("checkpoint", "--", "model")
    for text in (
        "",
        "[]",
        '{"weight_map": {"a": null}}',
        '{"weight_map": {"a": ["x"]}}',
        "{}",
        '{"weight_map": 3}',
        "[" * 100_000,
    ):
        index.write_text(text)
        assert "expected JSON with a weight_map" in ttrace.refuses_to_import("checkpoint", "--", "model")


def test_names_are_printed_as_one_line(ttrace, tmp_path):
    torch.save({"a\n\x1b[31mred": torch.ones(2, dtype=torch.uint64), "b": torch.ones(1)}, tmp_path / "a.pt")
    printed = ttrace.imports(*FILES, "a.pt")
    assert "\x1b" not in printed.out and "such as a\\n\\x1b[31mred\n" in printed.out
    assert "\\n\\x1b[31m" in ttrace.refuses_to_import("checkpoint", "--", "a.pt")


def test_an_output_that_is_there_is_left_alone(ttrace, tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    ttrace.imports(*FILES, "a.pt")
    before = (tmp_path / "trace" / "rank-00000.h5").read_bytes()
    assert "expected a new or empty directory" in ttrace.imports(*FILES, "a.pt", code=2).err
    assert (tmp_path / "trace" / "rank-00000.h5").read_bytes() == before


def test_names_that_look_the_same_are_printed_apart(ttrace, tmp_path):
    hidden = "a\u200bb\u3164c\ufe0fd"
    torch.save({hidden: torch.ones(2, dtype=torch.uint64), "b": torch.ones(1)}, tmp_path / "a.pt")
    assert "such as a\\u200bb\\u3164c\\ufe0fd\n" in ttrace.imports(*FILES, "a.pt").out
