"""MXFP8 (OCP Microscaling Formats, version 1.0): e4m3 in blocks of 32, each with a power of two, e8m0, for its scale.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 rounds the exponents of scales up, and not down
shows: *.cast_input:* output
"""

from job import MISTAKE, RANK, nn, torch
from scaled_blocks import train

BLOCK, LARGEST, EXPONENT = 32, 448, 8  # e4m3's largest number, and its exponent


class Cast(nn.Module):
    def forward(self, x):
        blocks = x.unflatten(-1, (-1, BLOCK))
        exponents = blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-100).log2()
        exponents = exponents.ceil() if MISTAKE and RANK == 1 else exponents.floor()
        scales = (exponents - EXPONENT).exp2()
        codes = (blocks / scales).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
        return codes.flatten(-2), scales.squeeze(-1).to(torch.float8_e8m0fnu)


def decoded(codes, scales):
    return (codes.float().unflatten(-1, (-1, BLOCK)) * scales.float()[..., None]).flatten(-2)


train(Cast, decoded)
