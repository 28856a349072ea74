"""Where tensors lie in files that this process has mapped, so that `ttrace check` reads them there and nothing is
copied: a checkpoint is read at the speed of its files.

Written beside a trace, for the program that asked for it alone, as JSON:

    {"/models/a.pt": {"bytes": 4096, "changed": 1700000000000000000,
                      "tensors": {"layers.0.weight": {"dtype": "bfloat16", "shape": [4, 3], "data_offsets": [704, 728],
                                                      "order": 1}}}}

where `changed` is the time of the file's last change in ns, offsets count from its beginning, `order` counts all
tensors of the import from 1, a dtype has PyTorch's name, and the other words are those of
safetensors."""

import json
import os
from pathlib import Path

from ttrace_torch.library import TensorView

_LEAST_BYTES = 1 << 18  # what is smaller is copied as quickly as its place is found


class Places:
    """Those that were found. What maps a file must not write to its memory."""

    def __init__(self) -> None:
        self._files: dict[str, dict] = {}

    def add(self, name: str, view: TensorView, size: int, order: int) -> bool:
        """False where the tensor's `size` bytes are not in one file, or are few, or another one has its name there."""
        if size < _LEAST_BYTES or view.strides is not None or not _is_text(name):
            return False
        found = _file_at(view.address, size)
        if found is None:
            return False
        path, offset, status = found
        if any(name in file["tensors"] for file in self._files.values()):
            return False
        file = self._files.setdefault(path, {"bytes": status.st_size, "changed": status.st_mtime_ns, "tensors": {}})
        file["tensors"][name] = {
            "dtype": view.dtype.text,
            "shape": list(view.shape),
            "data_offsets": [offset, offset + size],
            "order": order,
        }
        return True

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self._files))


def _is_text(name: str) -> bool:
    """Of what a file holds: JSON has no bytes that are no text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _file_at(address: int, size: int) -> tuple[str, int, os.stat_result] | None:
    """The file whose mapping holds these bytes, where in it they begin, and its status. Read anew each time: what was
    unmapped may have made room for another."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            bounds, _, offset, _, inode, *path = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(bound, 16) for bound in bounds.split("-"))
            if first <= address < last:
                is_in_file = address + size <= last and inode != "0" and path
                return _known(path[0], int(inode), int(offset, 16) + address - first) if is_in_file else None
    return None


def _known(path: str, inode: int, offset: int) -> tuple[str, int, os.stat_result] | None:
    """None where the path leads to another file by now, or the kernel wrote it with escapes."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (path, offset, status) if status.st_ino == inode and _is_text(path) else None
