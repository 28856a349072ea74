"""`ttrace import`: its Python runs in this process, which has torch already; test_command.py runs the program."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))  # program, traces

from program import Program

from traces import LIBRARY


class Importing(Program):
    def __init__(self, directory, capsys):
        super().__init__(directory)
        self._capsys = capsys

    def imports(self, format_, *words, output="trace", code=0):
        """stdout and stderr. The sources are words behind `--`; paths are relative to the directory."""
        from ttrace_import.__main__ import main

        options = ["--library", str(LIBRARY), "--output", str(self.directory / output)]
        assert main([format_, *options, *words]) == code
        return self._capsys.readouterr()

    def refuses_to_import(self, format_, *words):
        """The text of the one line on stderr; nothing is left of the trace."""
        printed = self.imports(format_, *words, output="refused", code=2)
        assert printed.out == "" and printed.err.startswith("ttrace: error: ") and printed.err.count("\n") == 1
        assert not (self.directory / "refused").exists()
        return printed.err[len("ttrace: error: ") : -1]

    def compares(self, reference, candidate, *words, code):
        return self.reports("check", "--reference", reference, "--candidate", candidate, *words, code=code)


@pytest.fixture
def ttrace(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Importing(tmp_path, capsys)
