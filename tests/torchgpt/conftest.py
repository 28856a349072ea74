import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The reader of the files of `ttrace collect`; the launcher of programs.
sys.path.insert(0, str(ROOT / "tests" / "collect"))
