"""A small Llama that PyTorch's own parallelism trains: DTensor tensor parallelism, fully_shard, pipelining."""
