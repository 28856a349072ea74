"""A Llama of Megatron-core under tensor and sequence parallelism.

package: Megatron-core
parallel: tensor and sequence parallel, 2 ranks
mistake: the gradients of norms are never summed over the ranks
shows: *norm*.weight main_grad
"""

import megatron_program

megatron_program.run(["--model", "llama"], ["--tp", "2", "--sp"], mistake="norm-gradients")
