"""The program, and the traces of a small model, as in tests/cli."""

import importlib.util
import pathlib
import sys

CLI = pathlib.Path(__file__).parents[1] / "cli"
sys.path.insert(0, str(CLI))

_spec = importlib.util.spec_from_file_location("cli_conftest", CLI / "conftest.py")
_cli = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cli)

ttrace, reference, candidate = _cli.ttrace, _cli.reference, _cli.candidate
