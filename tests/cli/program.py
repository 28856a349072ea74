"""Runs the program as a user types it, in a directory of its own."""

import re
import shlex
import subprocess

from traces import PROGRAM, checksum_of, digest_of

# In a tolerance file that a test writes by hand: of whatever the directory `reference` holds when the program runs.
DIGEST = "digest: of the reference"
SEAL = "seal: of the file"  # the same, of what the file says then


def seal_of(tolerances):
    """src/files/tolerance_seal.h"""
    counted, in_overrides = [], False
    for line in map(str.rstrip, tolerances.splitlines()):
        if not line or line.lstrip()[0] == "#":
            continue
        in_overrides = line.startswith("overrides:") or (in_overrides and line[0] in " -")
        if not in_overrides and not line.startswith("seal:"):
            counted.append(line + "\n")
    return f"x{checksum_of(''.join(counted).encode(), 0):016x}"


class Program:
    def __init__(self, directory):
        self.directory = directory

    def __call__(self, *words, code):
        """Runs it and returns (stdout, stderr); `code` is the exit code it must have."""
        self.fill_in_digests()
        result = subprocess.run([PROGRAM, *words], cwd=self.directory, capture_output=True, text=True, timeout=60)
        assert result.returncode == code, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        for line in re.findall(r"^next: ttrace ((?:check|localize) .*)$", result.stdout, re.MULTILINE):
            self.takes(shlex.split(line))
        return result.stdout, result.stderr

    def takes(self, words):
        """The program takes these words, and what stops it is a report that cannot be written."""
        end = words.index("--") if "--" in words else len(words)
        words = [*words[:end], "--junit", "no/such/directory", *words[end:]]
        stopped = subprocess.run([PROGRAM, *words], cwd=self.directory, capture_output=True, text=True)
        assert stopped.returncode == 2 and stopped.stderr.startswith("ttrace: error: no/such/directory: "), (
            f"next: {shlex.join(words)}\n{stopped.stderr}"
        )

    def refuses(self, *words):
        """The text of the one error line that a run which could not look leaves: nothing else, nowhere else."""
        stdout, stderr = self(*words, code=2)
        assert stdout == ""
        assert stderr.startswith("ttrace: error: ") and stderr.endswith("\n") and stderr.count("\n") == 1, stderr
        return stderr[len("ttrace: error: ") : -1]

    def reports(self, *words, code):
        """The report on stdout; nothing on stderr."""
        stdout, stderr = self(*words, code=code)
        assert stderr == ""
        return stdout

    def fill_in_digests(self):
        for path in self.directory.glob("*.yaml"):
            text = path.read_text()
            if DIGEST in text and (self.directory / "reference").is_dir():
                text = text.replace(DIGEST, f'digest: "{digest_of(self.directory / "reference")}"')
                path.write_text(text.replace(SEAL, f"seal: {seal_of(text)}"))
