"""Large tensors of checkpoints are compared where they lie in their files."""

import json
import resource
import subprocess
import sys
import zipfile

import numpy
import pytest
import torch
from safetensors.torch import save_file
from test_checkpoint import distributed, read_metadata, write_metadata

from traces import PROGRAM

PYTHON = f"--python={sys.executable}"
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.bool)


def weights():
    """Large ones of each dtype between small ones; those behind a bool begin at an odd byte of the file."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for i, dtype in enumerate(DTYPES):
        values = torch.randn(1 << 9, 3 << 8, generator=generator)
        tensors[f"layers.{i}.weight"] = (values > 0 if dtype == torch.bool else values).to(dtype)
        tensors[f"layers.{i}.bias"] = torch.randn(5, generator=generator)
    return tensors


def wrong(name="layers.1.weight"):
    tensors = weights()
    tensors[name].view(torch.uint8)[-1, -1] ^= 1
    return tensors


def state(path, tensors):
    torch.save({"step": 3, "optimizer": {"m": torch.ones(1 << 18)}, "model": tensors}, path)


WRITERS = {"file.pt": lambda path, tensors: torch.save(tensors, path), "state.ckpt": state, "dcp": distributed}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for side, tensors in (("right", weights()), ("wrong", wrong())):
        (folder / side).mkdir()
        for name, write in WRITERS.items():
            write(folder / side / name, tensors)
    save_file(weights(), folder / "file.safetensors")
    return folder


def check(ttrace, *sources):
    """Exit code and text, with room for the files of small tensors alone."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))  # noqa: E731
    command = [PROGRAM, "check", *sources, PYTHON]
    result = subprocess.run(command, cwd=ttrace.directory, capture_output=True, text=True, preexec_fn=limit)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_large_is_copied(ttrace, saved, name):
    code, text = check(ttrace, saved / "file.safetensors", saved / "right" / name)
    assert code == 0 and text.startswith("same\n") and "14 compared: 14 pass, 0 fail" in text
    code, text = check(ttrace, saved / "file.safetensors", saved / "wrong" / name)
    assert code == 1 and text.startswith("different\nfirst wrong tensor: layers.1.weight param, iteration 0\n")
    assert "worst at [511, 767]" in text and "14 compared: 13 pass, 1 fail" in text


def test_both_sides_are_read_in_place(ttrace, saved):
    code, text = check(ttrace, saved / "right" / "dcp", saved / "right" / "file.pt")
    assert code == 0 and "14 compared: 14 pass, 0 fail" in text


def test_an_array_is_read_in_place(ttrace, tmp_path):
    values = numpy.arange(1 << 18, dtype="float32")
    numpy.save(tmp_path / "a.npy", values)
    numpy.save(tmp_path / "b.npy", values)
    assert check(ttrace, "a.npy", "b.npy")[0] == 0
    values[-1] += 1
    numpy.save(tmp_path / "b.npy", values)
    assert check(ttrace, "a.npy", "b.npy")[0] == 1


def test_tensors_keep_their_order(ttrace, saved):
    text = ttrace.reports("inspect", str(saved / "right" / "file.pt"), PYTHON, "--json", "--tensor=**", code=0)
    assert [tensor["name"] for tensor in json.loads(text)["ranks"][0]["tensors"]] == list(weights())


def test_bytes_in_the_order_of_another_machine_are_turned(ttrace, tmp_path):
    values = torch.arange(1 << 17, dtype=torch.float32)
    torch.save({"w": values}, tmp_path / "little.pt")
    with zipfile.ZipFile(tmp_path / "little.pt") as old, zipfile.ZipFile(tmp_path / "big.pt", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("/byteorder"):
                data = b"big"
            elif name.endswith("/data/0"):
                data = values.numpy().astype(">f4").tobytes()
            new.writestr(name, data)
    assert ttrace.reports("check", "little.pt", "big.pt", PYTHON, code=0).startswith("same\n")


def test_a_view_of_other_strides_is_what_its_program_sees(ttrace, tmp_path):
    values = torch.randn(600, 500)
    torch.save({"w": values.t()}, tmp_path / "view.pt")
    torch.save({"w": values.t().contiguous()}, tmp_path / "plain.pt")
    assert ttrace.reports("check", "view.pt", "plain.pt", PYTHON, code=0).startswith("same\n")


def test_names_that_are_one_are_refused(ttrace, tmp_path):
    large, other = torch.ones(1 << 18), torch.zeros(1 << 18)
    torch.save({"model": {"a": {"b": large}, "a.b": other}}, tmp_path / "twice.pt")
    text = ttrace.refuses("check", "twice.pt", "twice.pt", PYTHON)
    assert "two tensors 'a.b'; expected names that differ" in text


@pytest.mark.parametrize("damage", ["short", "compressed", "twice", "costly"])
def test_a_chunk_that_lies_is_refused(ttrace, tmp_path, damage):
    distributed(tmp_path / "dcp", {"w": torch.ones(1 << 17)})
    (info,) = read_metadata(tmp_path / "dcp").storage_data.values()
    path = tmp_path / "dcp" / info.relative_path
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(tmp_path / "chunk", "w") as new:
        for name, data in members.items():
            cut = damage == "short" and name.endswith("/data/0")
            if damage == "costly" and name.endswith("/data.pkl"):  # 2^40 elements, in a pickle that PyTorch would read
                text = b"X" + (1 << 17).to_bytes(4, "little") + b"a" * (1 << 17)
                data = b"\x80\x02}" + text + b"K\x01s)q\x00" + b"h\x00\x86q\x00" * 40 + b"K\x01s."
            how = zipfile.ZIP_DEFLATED if damage == "compressed" else zipfile.ZIP_STORED
            new.writestr(name, data[: 1 << 18] if cut else data, how)
            if damage == "twice" and name.endswith("/data.pkl"):
                new.writestr(name, data[:-3])
    content = (tmp_path / "chunk").read_bytes()
    content += bytes(max(info.length - len(content), 0)) if damage != "costly" else b""
    path.write_bytes(content)
    if damage == "costly":
        metadata = read_metadata(tmp_path / "dcp")
        next(iter(metadata.storage_data.values())).length = len(content)
        write_metadata(tmp_path / "dcp", metadata)
    text = ttrace.refuses("check", "dcp", "dcp", PYTHON)
    assert info.relative_path in text and (damage != "costly" or "nests or repeats its values" in text)


def test_a_file_that_changes_while_it_is_read_is_no_verdict(ttrace, tmp_path):
    torch.save({"w": torch.ones(1 << 18)}, tmp_path / "a.pt")
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"; code=$?; touch a.pt; exit $code\n')
    slow.chmod(0o755)
    text = ttrace.refuses("check", "a.pt", "a.pt", f"--python={slow}")
    assert text.endswith("a.pt: changed while it was read; expected a file that nobody writes to")
