"""The program `ttrace` of a wheel: what pip puts into bin/ starts the one of the package."""

import os
import sys
from typing import NoReturn

from ._installation import DIRECTORY


def main() -> NoReturn:
    program = DIRECTORY / "bin" / "ttrace"
    os.execv(program, [sys.argv[0], *sys.argv[1:]])
