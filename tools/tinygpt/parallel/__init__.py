"""Training on many processes: tensor, sequence, data and pipeline parallelism over gloo."""
