"""A small GPT and its training, on one process with plain PyTorch or on many in Megatron's way."""
