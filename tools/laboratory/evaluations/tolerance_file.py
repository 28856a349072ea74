"""Reads what `ttrace estimate-tolerance` writes: one line a tensor (src/files/tolerance_file.h)."""

import json
import re
from pathlib import Path

_KIND = re.compile(r"  (\w+):")
_NAME = r"\"(?:[^\"\\]|\\.)*\"|[^:\"]+"
_TENSOR = re.compile(rf"    ({_NAME}): \{{.*?\bestimate: ([^,}}]+), floor: ([^,}}]+), allowed: ([^,}}]+)")


def read_tolerances(path: Path) -> dict[tuple[str, str], dict]:
    """(name, kind) -> estimate, floor, allowed, and the `line` that says so. Raises ValueError for another line."""
    tensors, kind = {}, None
    lines = path.read_text().splitlines()
    for line in lines[lines.index("tensors:") + 1 :]:
        if match := _KIND.fullmatch(line):
            kind = match[1]
        elif match := _TENSOR.match(line):
            name = json.loads(match[1]) if match[1].startswith('"') else match[1]
            numbers = zip(("estimate", "floor", "allowed"), map(float, match.groups()[1:]), strict=True)
            tensors[name, kind] = {**dict(numbers), "line": line}
        else:
            raise ValueError(f"{path}: '{line}': no tensor's tolerance")
    return tensors


def keep_group(path: Path, name: str, kind: str, output: Path) -> None:
    """Writes the file with the tolerances of this tensor and of the same in other layers, from whose samples they come:
    that of a deep model takes a second to read."""
    lines = path.read_text().splitlines()
    # Its seal is of all of them.
    head = [line for line in lines[: lines.index("tensors:") + 1] if not line.startswith("seal:")]
    group = [
        tolerance["line"]
        for (other, of_kind), tolerance in read_tolerances(path).items()
        if of_kind == kind and _group_of(other) == _group_of(name)
    ]
    output.write_text("\n".join([*head, f"  {kind}:", *group]) + "\n")


def _group_of(name: str) -> str:
    return re.sub(r"(?<![^.])[0-9]+(?![^.])", "#", name)
