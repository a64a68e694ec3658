"""Defines what torchvision's only wheel expects of a CUDA build, so that it imports without one.

Lightning, transformers and `accelerate launch` import it where it is installed.
"""

from outlay.probe.agent.patches import after_import

kept = []


def define(torch):
    if torch.version.cuda is None:
        operators = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        kept.append(operators)


after_import("torch", define)
