"""../torchtitan/train.py with the weights of a checkpoint of Hugging Face's Llama, which torchtitan converts itself.
Further arguments are torchtitan's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "torchtitan"))

import train
from checkpoints import checkpoint_of

if __name__ == "__main__":
    train.begin_with_hugging_face(checkpoint_of("torchtitan"))
    train.main()
