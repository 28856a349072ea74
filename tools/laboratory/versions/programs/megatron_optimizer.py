"""GPT of Megatron-core under data parallelism, with its distributed optimizer.

package: Megatron-core
parallel: data parallel, 2 ranks
mistake: gradients are summed over the ranks, where the step takes their mean
shows: * main_grad
"""

import megatron_program

megatron_program.run([], ["--distributed-optimizer"], mistake="gradient-sum")
