import sys
from pathlib import Path

# The runner of `ttrace collect` and the reader of its files.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "collect"))
