import torch
import torch._dynamo

# Runs are forked from this process: a thread pool started here would be missing in them.
torch.set_num_threads(1)
