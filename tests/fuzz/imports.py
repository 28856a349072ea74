"""Feeds damaged and hostile files to `ttrace import`, one format a target; tools/fuzz runs it.

    python imports.py TARGET SEED INPUTS SECONDS FOLDER

An input is a sound source in which bytes, numbers, words of its format or opcodes of its pickle were changed; checksums
and lengths are made good again, or not. What must hold: exit code 0, or 2 and one line; no traceback, no code that ran,
nothing written beside the trace, no more time than `LIMIT`, and no larger trace than the budget says. The source of
the latest input is in FOLDER: after a crash, its cause."""

import contextlib
import functools
import io
import json
import os
import pickletools
import random
import resource
import shutil
import struct
import sys
import time
import traceback
import warnings
import zipfile
from pathlib import Path

LIBRARY = Path(os.environ["TTRACE_BUILD"]) / "lib" / "libttrace.so"
LIMIT = 3  # seconds of the processor; an import of a sound source takes milliseconds
NUMBERS = [0, 1, 2, 127, 128, 255, 256, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 40), (1 << 63) - 1]
# Parts of pickles: values that are used again, tuples of tuples, calls of all that is allowed, and of what is not.
OPCODES = [
    *(bytes([code]) for code in b"(.012NINTRtu)]}aes\x85\x86\x87\x88\x89\x8f\x90\x91\x93\x94bQ"),
    *(b"h" + bytes([slot]) for slot in range(12)),
    *(b"q" + bytes([slot]) for slot in range(12)),
    b"2\x86" * 8,
    b"2\x86" * 40,
    b"})" + b"2\x86" * 40 + b"K\x01s0",  # whole, and thrown away
    b"c__builtin__\nset\n](" + b")" + b"2\x86" * 40 + b"e\x85R0",
    b"]" + b"2\x86" * 40 + b"0",
    b"K\x03",
    b"M\xff\xff",
    b"J\xff\xff\xff\xff",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x1f",
    b"\x8a\x05\x00\x00\x00\x00\x10",
    b"X\x01\x00\x00\x00w",
    b"X\x07\x00\x00\x00storage",
    b"c__builtin__\nset\n",
    b"c__builtin__\nbytearray\n",
    b"ccollections\nOrderedDict\n",
    b"ccollections\nCounter\n",
    b"ctorch\nSize\n",
    b"ctorch\nTensor\n",
    b"ctorch\nFloatTensor\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_parameter\n",
    b"ctorch._utils\n_rebuild_sparse_tensor\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n",
    b"ctorch.distributed.checkpoint.metadata\nMetadata\n",
    b"ctorch.distributed.checkpoint.metadata\nMetadataIndex\n",
    b"cpathlib\nPosixPath\n",
    b"cos\nmkdir\nX\x03\x00\x00\x00ran\x85R",
    b"cposix\nsystem\nX\x09\x00\x00\x00touch ran\x85R",
]
WORDS = [
    b"\\u0000",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"-1",
    b"1e999",
    b"..",
    b"/etc/passwd",
    b'"a.pt"',
]
WORDS += [b"F64", b"BF16", b"I8", b'"shape"', b'"data_offsets"', b"[1099511627776]", b"'<f4'", b"'|O'", b"(1 << 40,)"]


def seeds(target):
    """A source: names and contents of its files."""
    import numpy
    import torch

    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b.c": torch.ones(4, dtype=torch.bfloat16), "n": 3}
    tensors["again"] = tensors["a"]

    def saved(value, **options):
        buffer = io.BytesIO()
        torch.save(value, buffer, **options)
        return buffer.getvalue()

    if target == "pt":
        return {"a.pt": saved(tensors | {"list": [torch.ones(1).expand(4), (1, 2)]})}
    if target == "old_pt":
        return {"a.pt": saved(tensors, _use_new_zipfile_serialization=False)}
    if target == "safetensors":
        from safetensors.torch import save

        return {"a.safetensors": save({"a": tensors["a"], "b": tensors["b.c"]})}
    if target in ("npz", "npy"):
        buffer = io.BytesIO()
        array = numpy.arange(6, dtype="float32").reshape(2, 3)
        numpy.save(buffer, array) if target == "npy" else numpy.savez(buffer, a=array, b=array.astype("int8"))
        return {f"a.{target}": buffer.getvalue()}
    if target == "dcp":
        return of_dcp(tensors)
    if target == "msprobe":
        item = {"type": "torch.Tensor", "data_name": "a.pt"}
        data = {"Module.l.Linear.forward.0": {"input_args": [item], "output": [item], "parameters": {"weight": item}}}
        dump = {"task": "tensor", "level": "L0", "data": data}
        files = {"step0/rank0/dump.json": json.dumps(dump).encode()}
        return files | {"step0/rank0/dump_tensor_data/a.pt": saved(tensors["a"])}
    if target == "sglang":
        meta = {"name": "hidden_states", "rank": 0, "step": 0, "layer_id": 3}
        name = "step=0___rank=0___dump_index=1___name=hidden_states.pt"
        return {name: saved({"value": [tensors["a"]], "meta": meta})}
    assert target == "transformer_engine"
    return {"rank_0/iter_000000/layer_activation.pt": saved({"high_precision": tensors["a"], "scale": 1})}


def of_dcp(tensors):
    import torch.distributed.checkpoint as dcp

    folder = Path("dcp_seed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": {"a": tensors["a"], "b": tensors["b.c"]}}, checkpoint_id=str(folder), no_dist=True)
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    shutil.rmtree(folder)
    return files


FORMATS = {
    "npy": ("files", "--kind=output"),
    "dcp": ("checkpoint",),
    "msprobe": ("msprobe",),
    "sglang": ("sglang",),
    "transformer_engine": ("transformer-engine",),
}  # of the others: files, or a checkpoint


def changed(content, name, chance):
    """Most often a part that can be changed within what holds it together, else any bytes."""
    is_zip = content[:2] == b"PK"
    if is_zip and chance.random() < 0.8:
        return changed_zip(content, chance)
    if name.endswith(".safetensors") and chance.random() < 0.8:
        (size,) = struct.unpack_from("<Q", content)
        header = with_changes(content[8 : 8 + size], WORDS, chance)
        return struct.pack("<Q", len(header)) + header + content[8 + size :]
    return with_changes(content, WORDS if name.endswith((".json", ".npy")) else OPCODES, chance)


def changed_zip(content, chance):
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(result, "w") as new:
        members = [(info.filename, old.read(info)) for info in old.infolist()]
        picked = chance.choice([i for i, (name, _) in enumerate(members) if name.endswith((".pkl", ".npy"))])
        for i, (name, data) in enumerate(members):
            if i == picked:
                data = with_changes(data, OPCODES if name.endswith(".pkl") else WORDS, chance)
            new.writestr(name, data, zipfile.ZIP_DEFLATED if chance.random() < 0.05 else zipfile.ZIP_STORED)
            if chance.random() < 0.02:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    new.writestr(name, data[:-1])  # there twice
    return result.getvalue()


def with_changes(content, parts, chance):
    data = bytearray(content)
    begins = begins_of_opcodes(content) if parts is OPCODES else []
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(data) + 1)
        if begins and chance.random() < 0.5:  # then the rest is still a pickle
            at = chance.choice(begins)
            data[at:at] = chance.choice(parts)
            continue
        length = chance.choice((1, 1, 2, 4, 8, 30))
        kind = chance.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at : at + length] = b""
        elif kind == 2:
            number = chance.choice(NUMBERS)
            size = chance.choice((1, 2, 4, 8))
            data[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, chance.choice(("little", "big")))
        elif kind == 3:
            start = chance.randrange(len(data) + 1)
            data[at:at] = data[start : start + length] * chance.choice((1, 1, 20))
        else:
            part = chance.choice(parts)
            data[at : at + chance.choice((0, len(part)))] = part
    return bytes(data)


@functools.cache
def begins_of_opcodes(content):
    """Of the first pickle."""
    found = []
    with contextlib.suppress(Exception):
        for _, _, position in pickletools.genops(content):
            found.append(position)
    return found


def source_of(target, files, chance):
    """Another source: one file of it is changed, or two."""
    result = dict(files)
    names = [name for name in files if target != "dcp" or name == ".metadata"] if chance.random() < 0.7 else list(files)
    for name in chance.sample(names, min(len(names), chance.choice((1, 1, 2)))):
        result[name] = changed(files[name], name, chance)
    return result


class Ended(Exception):
    """What does not hold."""


def run(target, source, chance):
    """Whether it was refused. Raises Ended."""
    from ttrace_import import __main__ as program

    format_ = FORMATS.get(target) or chance.choice((("files", "--kind=output"), ("checkpoint",)))
    out, errors = io.StringIO(), io.StringIO()
    begin = time.process_time()
    # One call that nothing interrupts ends the process.
    resource.setrlimit(resource.RLIMIT_CPU, (int(begin) + 10 * LIMIT, resource.RLIM_INFINITY))
    in_place = ["--places", "places"] if format_ == ("checkpoint",) and chance.random() < 0.5 else []
    words = [*format_, *in_place, "--library", str(LIBRARY), "--output", "trace", "--", str(source)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = program.main(words)
    except BaseException:
        raise Ended(traceback.format_exc()) from None
    seconds, text = time.process_time() - begin, errors.getvalue()
    if seconds > LIMIT:
        raise Ended(f"hang: {seconds:.1f} s: {text}")
    if code not in (0, 2) or text.count("\n") != (code == 2) or not text.replace("\n", "").isprintable():
        raise Ended(f"exit code {code} and the text {text!r}")
    if in_place and code == 0:
        check_places(Path("places"))
    others = sorted(path.name for path in Path().iterdir() if path.name not in ("source", "trace"))
    if others or (code == 2 and Path("trace").exists()):
        raise Ended(f"left behind: {others} trace")
    allowed = (64 << 20) + 20 * sum(path.stat().st_size for path in Path("source").rglob("*") if path.is_file())
    if code == 0 and sum(path.stat().st_size for path in Path("trace").iterdir()) > allowed:
        raise Ended("a trace that is larger than the budget")
    shutil.rmtree("trace", ignore_errors=True)
    return code == 2


def check_places(places):
    """What is left in its file lies there, and only in the source. Removes the file."""
    for path, file in json.loads(places.read_text()).items():
        inside = Path(path).is_relative_to(Path("source").resolve()) and Path(path).stat().st_size == file["bytes"]
        bounds = [tensor["data_offsets"] for tensor in file["tensors"].values()]
        if not inside or not all(0 <= begin < end <= file["bytes"] for begin, end in bounds):
            raise Ended(f"places outside of their file: {path} {file}")
    places.unlink()


def main():
    target, seed, inputs, seconds, folder = sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5])
    sys.path.insert(0, str(Path(os.environ["TTRACE_BUILD"]) / "share" / "ttrace"))
    warnings.simplefilter("ignore")
    os.chdir(folder)
    from ttrace_import import budget, places

    budget._SECONDS = 2  # what is refused for its time is no hang
    places._LEAST_BYTES = 1
    files = seeds(target)
    source = Path("source")
    tally = {"inputs": 0, "refused": 0, "found": 0}
    end = time.monotonic() + seconds
    while tally["inputs"] < inputs and time.monotonic() < end:
        chance = random.Random(f"{target} {seed} {tally['inputs']}")
        shutil.rmtree(source, ignore_errors=True)
        made = source_of(target, files, chance) if tally["inputs"] else files
        for name, content in made.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(content)
        tally["inputs"] += 1
        print(json.dumps(tally), flush=True)
        refused = run(target, source if target in FORMATS else source / next(iter(made)), chance)
        if tally["inputs"] == 1 and refused:
            raise Ended("the sound source is refused")
        tally["refused" if refused else "found"] += 1
    print(json.dumps(tally))


if __name__ == "__main__":
    main()
