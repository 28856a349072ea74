"""What an import may cost: time of the processor, memory, and bytes of tensors and names, each in proportion to the
files of the source. A file of 1 kB can hold lists that are nested to 2^40 values, one element that is expanded to
32 GB, or a thousand references to one tensor; who made it need not have meant well."""

import contextlib
import os
import resource
import signal
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .refusal import Refused, one_line

# Files of a few hundred bytes took 1 ms each, 10,000 tensors of a kilobyte 2 s, and large tensors 2 s for each GB.
_SECONDS, _SECONDS_OF_FILE, _SECONDS_OF_BYTE = 10, 0.02, 2e-6
# A mask or a gradient that was dumped expanded is some times as large as its file.
_BYTES, _TIMES = 64 << 20, 16
_BYTES_OF_TENSOR = 256  # of a row of the trace's index, beside the name
_MEMORY = 2 << 30  # of the libraries' own threads and buffers


class Budget:
    """What is left for one import. What costs something says so, and where it is."""

    def __init__(self, sources: Iterable[Path]):
        sizes = [size for source in sources for size in _sizes_in(source)]
        self.source_bytes = sum(sizes)
        self.allowed_bytes = _BYTES + _TIMES * self.source_bytes
        self.allowed_seconds = _SECONDS + _SECONDS_OF_FILE * len(sizes) + _SECONDS_OF_BYTE * self.source_bytes
        self._bytes = 0
        self._place = ""

    def at(self, where: str | Path) -> None:
        """What is read from now on, for the refusal of what takes too long."""
        self._place = one_line(str(where))

    def take(self, size: int, where: str | Path) -> None:
        """Raises Refused where the tensors and names before and these `size` bytes are more than allowed."""
        self._bytes += size
        if self._bytes > self.allowed_bytes:
            raise Refused(
                f"{one_line(str(where))[:1000]}: with it the tensors and their names have {self._bytes} bytes, of "
                f"files with {self.source_bytes}; expected at most {_TIMES} times as many, and {_BYTES}"
            )

    def take_tensor(self, size: int, name: str, where: str | Path) -> None:
        self.take(size + len(name) + _BYTES_OF_TENSOR, where)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raises Refused within, at whatever place, once the time is up; MemoryError where memory is. The main thread
        alone may ask."""

        def end(number: int, frame: Any) -> None:
            raise Refused(
                f"{self._place}: takes more than {self.allowed_seconds:.0f} s of the processor, with files of "
                f"{self.source_bytes} bytes; expected less"
            )

        before = signal.signal(signal.SIGPROF, end)
        # Again and again: a library may have swallowed the first.
        signal.setitimer(signal.ITIMER_PROF, self.allowed_seconds, 1)
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = _data_of_process() + _MEMORY + self.allowed_bytes
        lower = [number for number in (soft, hard, limit) if number != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(lower), hard))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def hold_process(self) -> None:
        """Ends this process by SIGXCPU where one call into a library takes so long that `held` can't raise."""
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime + 2 * self.allowed_seconds) + 1
        lower = [number for number in (soft, hard, limit) if number != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_CPU, (min(lower), hard))


def _sizes_in(source: Path) -> Iterator[int]:
    """Of the regular files; what is unreadable is refused by who reads it."""
    if not source.is_dir():
        with contextlib.suppress(OSError):
            yield source.stat().st_size
        return
    for directory, _, names in os.walk(source):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(directory, name))
                if stat.S_ISREG(status.st_mode):
                    yield status.st_size


def _data_of_process() -> int:
    """The bytes that RLIMIT_DATA counts."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))
