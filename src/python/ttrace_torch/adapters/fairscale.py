"""fairscale: OSS, whose ranks each step a part of the parameters and hand on what they have made of it."""

from .adapter import Adapter, Clipping

_MODULE = "fairscale.optim.oss"


class Fairscale(Adapter, module=_MODULE):
    clipping = (Clipping(_MODULE, "OSS.clip_grad_norm", norm="result"),)
