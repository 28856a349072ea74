"""Names as a trace can hold them: of at most kMaxNameBytes (src/base/trace.h), and without what links of HDF5
cannot hold. Two programs get the same name for the same module."""

import functools
import hashlib
from collections import Counter

_MOST_BYTES = 4096
_KEPT = 1500  # bytes of a longer name at its begin, and at its end

_REFUSED = {"\0": "\\x00", "\u2215": "\\u2215"}  # C text ends at the first; in links of HDF5 the other stands for "/"


def recordable(name: str) -> str:
    """`name`; where a trace cannot hold it, its odd characters as Python would write them in a literal, and a checksum
    in place of its middle."""
    for character, instead in _REFUSED.items():
        if character in name:
            name = name.replace(character, instead)
    encoded = name.encode("utf-8", "backslashreplace")  # lone surrogates
    if len(encoded) > _MOST_BYTES:
        checksum = hashlib.blake2b(encoded, digest_size=16).hexdigest()
        begin, end = (part.decode("utf-8", "ignore") for part in (encoded[:_KEPT], encoded[-_KEPT:]))
        return f"{begin}~{checksum}~{end}"
    return name if len(encoded) == len(name) else encoded.decode()


@functools.lru_cache(maxsize=1 << 10)
def plain_class(module_class: type) -> type:
    """The class as the program wrote it: `fully_shard` turns it into one derived from FSDPModule and it."""
    classes = module_class.__mro__
    names = [base.__name__ for base in classes]
    return classes[names.index("FSDPModule") + 1] if "FSDPModule" in names else classes[0]


def plain_name(module_class: type) -> str:
    """By which a trace and messages call a module that is in no other one."""
    return plain_class(module_class).__name__


def numbered(title: str, before: Counter[str]) -> str:
    """The title, with a number behind it where `before` counts some of it already, and counts it: EMA, EMA1, EMA2."""
    before[title] += 1
    return title if before[title] == 1 else f"{title}{before[title] - 1}"


@functools.lru_cache(maxsize=1 << 10)
def name_of_class(module_class: type) -> str:
    return f"{module_class.__module__}.{module_class.__qualname__}"
