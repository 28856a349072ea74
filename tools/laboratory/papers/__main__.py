"""`tools/papers PART...` measures parts of RESULTS.md, all without one; `tools/papers claims` makes CLAIMS.md of
claims.yaml, and refuses where a number that it cites is no longer on its page."""

import argparse
import importlib
import sys
import time
from pathlib import Path

from reproductions.__main__ import with_section

from freshness import commit, machine, sentence

from . import claims

HERE = Path(__file__).resolve().parent
PAGE, CLAIMS = HERE / "RESULTS.md", HERE / "CLAIMS.md"

# By name: the module, which has measure(), the lines of its section, and the section of the page. In its order.
PARTS = {
    "table-3": ("loosest_bound", "TTrace, table 3: what of a correct run violates the loosest bound"),
    "e-max": ("e_max", "V-ABFT, tables 1, 2 and 7: e_max of this machine"),
    "real-weights": ("real_weights", "V-ABFT, section 6.7: weights of real models"),
    "models": ("models", "ATTNChecker, tables 2 and 3: transformers' models"),
    "near-infinity": ("near_infinity", "ATTNChecker, table 3: what near-INF depends on"),
    "recovery": ("recovery", "ATTNChecker, figure 6: the loss after corrected faults"),
    "restart": ("restart", "ATTNChecker, figure 11: a correction against a restart"),
    "frequencies": ("frequencies", "ATTNChecker, section 4.5: how often to check"),
    "node": ("node", "SDC study, tables 1, 2 and 6 to 9, figures 3 to 6: a simulated unhealthy node"),
    "faults": ("faults", "Faults as GPUs make them"),
}


def measure(name: str) -> str:
    module = importlib.import_module(f".{PARTS[name][0]}", __package__)
    started, measured = time.monotonic(), commit()
    lines = module.measure()
    said = sentence(f"tools/papers {name}", time.monotonic() - started, [measured], machine())
    return "\n".join([*lines, "", said])


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/papers", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join([*PARTS, 'claims'])}; all without one")
    parts = parser.parse_args().parts or [*PARTS, "claims"]
    if unknown := [part for part in parts if part not in PARTS and part != "claims"]:
        parser.error(f"'{unknown[0]}' is no part; {', '.join(PARTS)} or claims were expected")
    for part in parts:
        if part == "claims":
            started = time.monotonic()
            if gone := claims.gone():
                print("\n".join(["tools/papers: no longer on their pages:", *gone]), file=sys.stderr)
                return 1
            said = sentence("tools/papers claims", time.monotonic() - started, [commit()], machine())
            CLAIMS.write_text("\n".join([*claims.render(), "", said, ""]))
            continue
        text = measure(part)
        print(text, end="\n\n", flush=True)
        PAGE.write_text(with_section(PAGE.read_text(), PARTS[part][1], text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
