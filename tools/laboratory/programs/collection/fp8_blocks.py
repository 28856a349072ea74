"""Blockwise FP8, as of DeepSeek-V3: e4m3 with a scale in fp32 for each tile. Its tiles are 1 x 128, of weights 128 x
128; here all are 1 x 16.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 multiplies each tile by the scale of the tile before it
shows: *.up output
"""

from job import MISTAKE, RANK, nn, torch
from scaled_blocks import train

TILE, LARGEST = 16, 448


class Cast(nn.Module):
    def forward(self, x):
        tiles = x.unflatten(-1, (-1, TILE))
        scales = tiles.abs().amax(-1, keepdim=True).clamp(min=1e-12) / LARGEST
        return (tiles / scales).to(torch.float8_e4m3fn).flatten(-2), scales.squeeze(-1)


def decoded(codes, scales):
    if MISTAKE and RANK == 1:
        scales = scales.roll(1, -1)
    return (codes.float().unflatten(-1, (-1, TILE)) * scales[..., None]).flatten(-2)


train(Cast, decoded)
