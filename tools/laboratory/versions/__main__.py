import argparse
import sys
from fnmatch import fnmatch

from . import measure, page
from .table import Release, releases


def main() -> int:
    options = _options()
    every = releases()
    named = [each for each in every if not options.names or any(_fits(each, name) for name in options.names)]
    if options.list:
        print("\n".join(f"{each.name:22} {' '.join(program.name for program in each.programs)}" for each in named))
        return 0
    if not named:
        print(f"versions: error: no release has the name {' or '.join(options.names)}; --list", file=sys.stderr)
        return 2
    for release in named if not options.page else ():
        if options.again or not measure.is_measured(release):
            _run(release, options, every)
    page.write(every)
    lines = page.lines_of(named, measure.kept())
    as_expected = sum(line.expected() for line in lines)
    print(f"{as_expected} of {len(named)} releases are as they should be")
    if len(lines) < len(named) or any(line.result.refused for line in lines):
        return 2
    return 0 if as_expected == len(lines) else 1


def _fits(release: Release, name: str) -> bool:
    return release.package == name or fnmatch(release.name, name)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/versions",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs small programs, correct and wrong, under ttrace with older and newer releases of PyTorch\n"
        "and of frameworks, and makes a table of what it says: tools/laboratory/versions/RESULTS.md. Each release\n"
        "has an environment of its own in build/versions, which is deleted behind it. What has been run at this\n"
        "commit isn't run again, so that a run that was stopped goes on.\n\n"
        "PyTorch is asked for as the build for the CPU alone: on x86-64 PyPI has none, and pip must know of an\n"
        "index or a folder that does (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS). A release that isn't to be had is named.",
        epilog="Exit code: 0 when with all of these releases every correct program is the same and every wrong one\n"
        "different at the right tensor; 1 when not; 2 when a release could not be had.\n\n"
        "Examples:\n"
        "  tools/versions                       what has not been run at this commit\n"
        "  tools/versions deepspeed             all releases of a package\n"
        "  tools/versions 'torch-2.4*' --keep\n"
        "  PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu tools/versions torch",
    )
    add = parser.add_argument
    add("names", metavar="NAME", nargs="*", help="only this package, or releases of this name, which may be a glob")
    add("--any-build", action="store_true", help="PyTorch with CUDA will do: gigabytes for each of its releases")
    add("--keep", action="store_true", help="keep environments and traces")
    add("--again", action="store_true", help="also what has been run at this commit")
    add("--list", action="store_true", help="list the releases with their programs, run nothing")
    add("--page", action="store_true", help="make the page alone, run nothing")
    return parser.parse_args()


def _run(release: Release, options: argparse.Namespace, every: list[Release]) -> None:
    print(f"versions: {release.name}", file=sys.stderr, flush=True)
    if options.again:
        measure.forget(release)
    for _ in measure.measure(release, options.any_build, options.keep):
        page.write(every)
    (line,) = page.lines_of([release], measure.kept())
    count = len(line.ran())
    tests = "".join(f", {number} {outcome}" for outcome, number in line.tests().items())
    said = line.result.refused or f"{line.same()} of {count} same, {line.different()} of {count} different{tests}"
    print(f"{' ' if line.expected() else '!'} {release.name}: {said}; {line.result.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
