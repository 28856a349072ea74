"""NVFP4: e2m1, two in a byte, in blocks of 16, each with a scale in e4m3, times a scale in fp32 of the whole operand,
whose largest value is that of all ranks.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each rank takes the largest of its own values
shows: *.cast_input:* output
"""

from job import MISTAKE, RANKS, dist, nn, torch
from scaled_blocks import train

BLOCK = 16
NUMBERS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # of e2m1, without a sign
BETWEEN = (NUMBERS[1:] + NUMBERS[:-1]) / 2
LARGEST = 6 * 448  # of a code times a block's scale


class Cast(nn.Module):
    def forward(self, x):
        largest = x.abs().max()
        if RANKS > 1 and not MISTAKE:
            dist.all_reduce(largest, dist.ReduceOp.MAX)
        whole = largest / LARGEST
        blocks = x.unflatten(-1, (-1, BLOCK))
        scales = (blocks.abs().amax(-1, keepdim=True) / 6 / whole).to(torch.float8_e4m3fn)
        shares = blocks / (scales.float() * whole).clamp(min=1e-12)
        codes = torch.bucketize(shares.abs(), BETWEEN).to(torch.uint8) | (shares < 0).to(torch.uint8) << 3
        low, high = codes.flatten(-2).unflatten(-1, (-1, 2)).unbind(-1)
        return (low | high << 4).view(torch.float4_e2m1fn_x2), scales.squeeze(-1), whole


def decoded(codes, scales, whole):
    both = codes.view(torch.uint8)
    codes = torch.stack([both & 15, both >> 4], -1).flatten(-2)
    numbers = NUMBERS[(codes & 7).long()] * torch.where(codes > 7, -1.0, 1.0)
    return (numbers.unflatten(-1, (-1, BLOCK)) * (scales.float() * whole)[..., None]).flatten(-2)


train(Cast, decoded)
