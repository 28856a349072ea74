"""The regular files of a source. What is no regular file, or leads out of its folder, is refused: it may come from
anybody."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .refusal import Refused, one_line, shown

_MOST_FILES = 1_000_000
_LINK = "a symbolic link; expected a regular file (of a Hugging Face cache: its copy by `cp -rL`)"


def regular_file(path: Path, *, expected: str = "a regular file", named_by_user: bool = False) -> Path:
    """`path`, where it is one; a link only where the user named it."""
    try:
        mode = (path.stat() if named_by_user else path.lstat()).st_mode
    except OSError as error:
        raise Refused(f"{one_line(str(path))}: {error.strerror}; expected {expected}") from None
    if stat.S_ISLNK(mode):
        raise Refused(f"{one_line(str(path))}: {_LINK}")
    if not stat.S_ISREG(mode):
        raise Refused(f"{one_line(str(path))}: not a regular file; expected {expected}")
    return path


def member(folder: Path, name: object, named_in: Path) -> Path:
    """The regular file of `folder` that `named_in`, a file there, calls `name`."""
    plain = isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name
    if not plain:
        raise Refused(f"{one_line(str(named_in))}: names the file {shown(name)}; expected one beside it")
    return regular_file(folder / name)


def is_folder(path: Path) -> bool:
    """Of a source. Refuses what is neither folder nor regular file."""
    if path.is_dir():
        return True
    regular_file(path, expected="a folder or a regular file", named_by_user=True)
    return False


def files_below(folder: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Relative path with "/" and the path, of the files with one of the suffixes, in order."""
    seen = 0
    for directory, folders, names in os.walk(folder, onerror=_refuse):
        folders.sort()
        for name in folders:
            if os.path.islink(os.path.join(directory, name)):
                raise Refused(f"{one_line(os.path.join(directory, name))}: {_LINK}")
        for name in sorted(names):
            seen += 1
            if seen > _MOST_FILES:
                raise Refused(f"{one_line(str(folder))}: more than {_MOST_FILES} files; expected fewer")
            if name.endswith(suffixes):
                path = Path(directory, name)
                yield os.path.relpath(path, folder).replace(os.sep, "/"), regular_file(path)


def _refuse(error: OSError) -> None:
    raise Refused(f"{one_line(str(error.filename))}: {error.strerror}; expected a readable folder")
