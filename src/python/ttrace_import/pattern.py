"""What a path, and a key within the file, say of a tensor: `step{iteration}/rank{rank}/{name}.pt`."""

import re
from dataclasses import dataclass

from ttrace_torch.library import Kind

from .refusal import Refused, one_line

_NUMBER = r"[0-9]{1,9}"
_CAPTURES = {
    "iteration": _NUMBER,
    "microbatch": _NUMBER,
    "rank": _NUMBER,
    "kind": "|".join(sorted((kind.text for kind in Kind), key=len, reverse=True)),
    "name": ".+",
}
_MOST_BYTES = 4096  # of a path or a key: longer ones match nothing


@dataclass(frozen=True)
class Captured:
    """What is absent was not captured."""

    name: str | None = None
    kind: Kind | None = None
    rank: int | None = None
    iteration: int | None = None
    microbatch: int | None = None


class Pattern:
    """The part before `::` is matched with the path below the source, the part behind it, where there is one, with the
    key of a tensor in the file."""

    def __init__(self, text: str):
        path, self.has_key, key = text.partition("::")
        names = re.findall(r"\{(\w*)\}", text)
        unknown = [name for name in names if name not in _CAPTURES]
        if unknown or "{" in re.sub(r"\{\w+\}", "", text) or len(set(names)) < len(names):
            raise Refused(
                f"--pattern '{one_line(text)}': expected each of {', '.join('{' + name + '}' for name in _CAPTURES)} "
                "at most once, and * for other text"
            )
        self._path, self._key = _expression(path), _expression(key)
        self.captures_rank = "{rank}" in path
        self.captures_kind = "{kind}" in text

    def match_path(self, path: str) -> dict[str, str] | None:
        """Captures of a path that matches; for `captured`."""
        found = self._path.fullmatch(path) if len(path.encode()) <= _MOST_BYTES else None
        return None if found is None else found.groupdict()

    def captured(self, of_path: dict[str, str], key: str) -> Captured | None:
        """None where the key does not match. Without a pattern of keys a key follows the path's name."""
        groups = dict(of_path)
        if "name" in groups:
            groups["name"] = groups["name"].replace("/", ".")
        if self.has_key:
            found = self._key.fullmatch(key) if len(key.encode()) <= _MOST_BYTES else None
            if found is None:
                return None
            groups |= found.groupdict()
        elif key:
            groups["name"] = f"{groups['name']}.{key}" if "name" in groups else key
        numbers = {name: int(groups[name]) for name in ("iteration", "microbatch", "rank") if name in groups}
        kind = Kind[groups["kind"].upper()] if "kind" in groups else None
        return Captured(name=groups.get("name"), kind=kind, **numbers)


def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\}|\*)", pattern)
    return re.compile("".join(_part(part) for part in parts), re.DOTALL)


def _part(part: str) -> str:
    if part == "*":
        return ".*"
    name = part[1:-1]
    return f"(?P<{name}>{_CAPTURES[name]})" if part.startswith("{") else re.escape(part)
