"""ZeRO-1 by DeepSpeed's engine, two micro-batches a rank, clipped; the reference is plain PyTorch.

package: DeepSpeed
parallel: ZeRO-1, 2 ranks
mistake: the loss of rank 1 is 1 % too large
shows: loss scalar, (model) grad_output, head grad_output
"""

import deepspeed_engine

deepspeed_engine.train(stage=1)
