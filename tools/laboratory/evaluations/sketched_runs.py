"""What is measured of a run that was recorded whole or with `collect --sketch`."""

import json
import math
from pathlib import Path

from sweeps.runs import TTRACE, run

from .bench import read_csv
from .corpus import First

KINDS: dict[str, list[str]] = {"whole": [], "sketched": ["--sketch"]}  # options of `ttrace collect`


def of_report(report: dict, csv_text: str) -> dict:
    """What a report says of a run: its verdict, the first wrong tensor, whether that was judged by a sketch, and how
    many comparisons were of sketches. `csv_text` is that of `check --csv`."""
    cause, counts = report["root_cause"], report["counts"]
    # A sketch gives a norm of the difference, and no largest element.
    by_sketch = {_key(row) for row in read_csv(csv_text) if row["rel_err"] and not row["max_abs"]}
    found = cause and First(cause["name"], cause["kind"], cause["microbatch"], cause["iteration"])
    return {
        "verdict": report["verdict"],
        "found": cause and str(found),
        "ratio": cause and cause["ratio"],
        "found_by_sketch": cause is not None and _key(cause) in by_sketch,
        "compared": counts["compared"],
        "sketched": len(by_sketch),
        "not_seen": counts["not_seen"],
        "wrong": counts["fail"] + counts["missing"],
    }


def _key(row: dict) -> tuple[str, str, int, str, str]:
    batch = row["microbatch"]
    return row["name"], row["kind"], int(row["iteration"] or 0), "" if batch is None else str(batch), row["pass"]


_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2}  # others: 1


def of_trace(trace: Path) -> dict:
    """Bytes of its files and of the elements of its tensors, how many tensors it has, how many of them as sketches, and
    what recording took of the job."""
    listing = json.loads(run([TTRACE, "inspect", str(trace), "--json"]))
    tensors = [tensor for rank in listing["ranks"] for tensor in rank["tensors"]]
    return {
        "bytes": sum(path.stat().st_size for path in trace.glob("rank-*.h5")),
        "element_bytes": sum(math.prod(each["shape"]) * _BYTES.get(each["dtype"], 1) for each in tensors),
        "tensors": len(tensors),
        "sketches": sum("sketch" in tensor for tensor in tensors),
        "recording_seconds": listing["provenance"]["recording_seconds"],
    }
