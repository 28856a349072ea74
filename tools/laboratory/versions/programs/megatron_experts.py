"""A mixture of experts of Megatron-core, two experts a rank.

package: Megatron-core
parallel: expert parallel, 2 ranks
mistake: gradients are summed over the ranks, where the step takes their mean
shows: * main_grad
"""

import megatron_program

megatron_program.run(["--experts", "4"], ["--ep", "2"], mistake="gradient-sum")
