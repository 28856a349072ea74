"""torchvision's wheel on PyPI wants PyTorch with CUDA: beside another, its operators cannot be loaded, and it fails for
two of them. Imported before it, this declares these; nobody here calls them."""

import contextlib

import torch

_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    with contextlib.suppress(RuntimeError):  # where the operators can be loaded, they are
        _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
