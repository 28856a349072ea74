"""Prints the slowest tests of runs of ctest, and how many passed: durations.py DIRECTORY, with a JUnit file of each."""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SHOWN = 10


def main() -> None:
    runs = sorted(Path(sys.argv[1]).glob("*.xml"))
    cases = [(path.stem, case) for path in runs for case in ElementTree.parse(path).iter("testcase")]
    print(f"the {SHOWN} slowest of {len(cases)} tests:")
    for run, case in sorted(cases, key=lambda one: -float(one[1].get("time", 0)))[:SHOWN]:
        print(f"{float(case.get('time', 0)):7.1f} s  {run}: {case.get('name')}")
    states = [case.get("status") for _, case in cases]
    failed, skipped = states.count("fail"), len(states) - states.count("fail") - states.count("run")
    print(f"{states.count('run')} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    main()
