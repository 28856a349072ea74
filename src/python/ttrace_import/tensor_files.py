"""The tensors in a file, by the keys that lead to them. No code of a file is run: of a pickle torch's restricted
unpickler reads tensors, containers, numbers and texts (`weights_only`)."""

import math
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .budget import Budget
from .pickle_cost import check_cost
from .refusal import Refused, one_line, refusing, require, shown

SUFFIXES = (".safetensors", ".npz", ".npy", ".pt", ".pth", ".bin", ".ckpt")
_PICKLES = (".pt", ".pth", ".bin", ".ckpt")

# PyTorch before this one runs code of hostile files even with weights_only (CVE-2025-32434).
_OLDEST_TORCH = (2, 6)
_MOST_NESTED = 64
_MOST_ENTRIES = 1_000_000

Keys = tuple[str, ...]  # () where the file is the tensor


def tensors_in(path: Path, budget: Budget, skipped: Callable[[Keys, str], None]) -> Iterator[tuple[Keys, Any]]:
    """Keys and the tensor (torch's or numpy's), in the file's order; `skipped` is told of entries that are none.
    Raises Refused, also for a file that its library cannot read."""
    budget.at(path)
    with refusing(path, f"a whole {path.suffix} file"):
        if path.name.endswith(".safetensors"):
            yield from _safetensors(path)
        elif path.name.endswith(".npz"):
            yield from _npz(path, budget)
        elif path.name.endswith(".npy"):
            yield (), require("numpy").load(path, mmap_mode="r", allow_pickle=False)
        else:
            yield from leaves(load_pickle(path), path, budget, skipped)


def load_pickle(source: Any, where: str | Path = "") -> Any:
    """What torch.save wrote to a path or a binary file; without its code. Raises Refused."""
    torch = require("torch")
    version = tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2])
    if version < _OLDEST_TORCH:
        raise Refused(
            f"PyTorch {torch.__version__} may run code that a .pt file holds (CVE-2025-32434); expected 2.6 or newer"
        )
    where = one_line(str(where or source))
    is_path = isinstance(source, Path)
    is_zip = zipfile.is_zipfile(source)  # else the format before PyTorch 1.6, or none
    in_place = False
    if is_zip:
        with zipfile.ZipFile(source) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise Refused(f"{where}: has compressed members, which torch.save does not write")
            for member in archive.infolist():
                if member.filename.lower().endswith("data.pkl"):
                    with archive.open(member) as file:
                        _check_pickles(file, 1, member.file_size, where)
            in_place = is_path and _is_of_this_machine(archive)
    if not is_path:
        source.seek(0)
    if not is_zip:
        _check_old_format(source, where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is wrong is said in one line
            file = str(source) if is_path else source
            return torch.load(file, map_location="cpu", weights_only=True, mmap=in_place)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        unknown = f" ({found[1][:100]})" if found else ""
        raise Refused(
            f"{where}: holds objects that are no tensors{unknown}, and code is not run; expected tensors in lists and "
            "dicts"
        ) from None


def _is_of_this_machine(archive: zipfile.ZipFile) -> bool:
    """By its order of bytes. PyTorch turns others where they lie: mapped memory is not the file's then."""
    for name in archive.namelist():
        if name.endswith("/byteorder"):
            with archive.open(name) as file:
                if file.read(8) != sys.byteorder.encode():
                    return False
    return True


def _check_old_format(source: Any, where: str) -> None:
    """Of a path or a binary file: torch.save wrote its version, the values and their storages' names as pickles."""
    if isinstance(source, Path):
        with open(source, "rb") as file:
            _check_pickles(file, 5, source.stat().st_size, where)
        return
    begin = source.tell()
    size = source.seek(0, 2) - begin
    source.seek(begin)
    _check_pickles(source, 5, size, where)
    source.seek(begin)


def _check_pickles(file: BinaryIO, count: int, size: int, where: str) -> None:
    try:
        for _ in range(count):
            check_cost(file, size, where)
    except Refused:
        raise
    except Exception:
        return  # torch says what is wrong with it, and comes no further


def leaves(
    value: Any, where: str | Path, budget: Budget, skipped: Callable[[Keys, str], None]
) -> Iterator[tuple[Keys, Any]]:
    """The tensors in nested dicts, lists and tuples."""
    import torch

    visited = 0
    stack: list[tuple[Keys, Any]] = [((), value)]
    while stack:
        keys, item = stack.pop()
        visited += 1
        if visited > _MOST_ENTRIES or len(keys) > _MOST_NESTED:
            raise Refused(f"{one_line(str(where))}: holds more than {_MOST_ENTRIES} entries, or nests them too deep")
        budget.take(sum(map(len, keys)), f"{where}: {keys[-1][:100] if keys else ''}")
        if isinstance(item, torch.Tensor):
            yield keys, item
        elif isinstance(item, dict):
            stack.extend(((*keys, _text_of(key)), member) for key, member in reversed(item.items()))
        elif isinstance(item, (list, tuple)):
            stack.extend(((*keys, str(index)), member) for index, member in reversed(list(enumerate(item))))
        else:
            skipped(keys, f"a {type(item).__name__}")


def _text_of(key: Any) -> str:
    return key if isinstance(key, str) else shown(key)


def _safetensors(path: Path) -> Iterator[tuple[Keys, Any]]:
    require("torch")
    with require("safetensors").safe_open(str(path), framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 (no mapping)
            yield (key,), file.get_tensor(key)


def _npz(path: Path, budget: Budget) -> Iterator[tuple[Keys, Any]]:
    numpy = require("numpy")
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                raise Refused(f"{one_line(str(path))}: has a member {shown(member.filename)}; expected NumPy arrays")
            # NumPy makes room for what a header says before it reads: that must be what the member has.
            with archive.open(member) as file:
                shape, dtype = _npy_header(numpy, file)
                if dtype.hasobject:
                    raise Refused(f"{one_line(str(path))}: holds Python objects, and code is not run; expected numbers")
                if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
                    raise Refused(
                        f"{one_line(str(path))}: {shown(member.filename)} says shape {shape} of {dtype}, and has "
                        f"{member.file_size} bytes"
                    )
            budget.take(member.file_size, f"{path}: {member.filename}")
            if member.file_size > available_memory():
                raise Refused(
                    f"{one_line(str(path))}: {shown(member.filename)} needs {member.file_size} bytes of memory"
                )
    with numpy.load(path, allow_pickle=False) as file:
        for key in file.files:
            yield (key,), file[key]


def _npy_header(numpy: Any, file: Any) -> tuple[tuple[int, ...], Any]:
    version = numpy.lib.format.read_magic(file)
    read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else numpy.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def available_memory() -> int:
    """In bytes."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
