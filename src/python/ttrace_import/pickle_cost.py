"""What it costs to read a pickle, told from its opcodes alone.

A tuple that a dictionary has as its key is hashed with all that is nested in it, within one call that nothing
interrupts: 40 opcodes that pair a tuple with itself are 2^40 elements. So each tuple counts as what it would be written
out, each time that the pickle uses it. Other values are hashed by their identity, or not at all, and count as one.
Whole numbers have hashes that anybody can make alike: those of more than 60 bits are few."""

import pickletools
from typing import BinaryIO

from .refusal import Refused, one_line

_TIMES, _ELEMENTS = 64, 1_000_000
_MOST_LARGE_NUMBERS = 1_000
_MARK = -1
_LARGEST = 1 << 60


def check_cost(file: BinaryIO, size: int, where: str) -> None:
    """Of the pickle that begins where `file` is, to whose end it is read. Raises Refused; and whatever pickletools
    raises of what is no pickle."""
    allowed = _TIMES * size + _ELEMENTS
    stack: list[int] = []
    memo: dict[int, int] = {}
    used = large = 0
    for opcode, argument, _ in pickletools.genops(file):
        name = opcode.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
            continue
        if name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
            continue
        if name == "MARK":
            stack.append(_MARK)
            continue
        if name == "DUP":
            count = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            count = memo[argument]
        else:
            popped = _pop(stack, opcode)
            if not opcode.stack_after:
                continue
            is_value = name.startswith(("TUPLE", "REDUCE", "NEWOBJ", "BUILD", "FROZENSET", "INST", "OBJ"))
            count = min(1 + popped, _LARGEST) if is_value else 1
            large += isinstance(argument, int) and argument.bit_length() > 60
        stack.append(count)
        used += count
        if used > allowed or large > _MOST_LARGE_NUMBERS:
            raise Refused(
                f"{one_line(where)}: nests or repeats its values to more than {allowed} elements in {size} bytes; "
                "expected what a program saves"
            )


def _pop(stack: list[int], opcode: pickletools.OpcodeInfo) -> int:
    """The sum of what the opcode takes from the stack."""
    total = 0
    before = opcode.stack_before
    if pickletools.markobject in before:
        while (count := stack.pop()) != _MARK:
            total += count
        before = before[: before.index(pickletools.markobject)]
    for _ in before:
        total += stack.pop()
    return total
