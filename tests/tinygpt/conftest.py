import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

# Runs are forked from this process: a thread pool started here would be missing in them.
torch.set_num_threads(1)
