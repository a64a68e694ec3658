"""Time to exchange gradients between the GPUs of one machine.

Data parallel training sums gradients over all GPUs each step by a ring all-reduce, which moves
2 (n - 1) / n of the gradient bytes over the slowest link of each GPU (Patarasuk and Yuan 2009,
doi 10.1016/j.jpdc.2008.09.002), partly while backward still runs.
"""

from __future__ import annotations

from outlay.estimate import Estimate
from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration

_MODULE_FORMS = ("SXM", "OAM", "superchip")


def has_fast_links(gpu: Gpu) -> bool:
    """Whether machines of this GPU come with NVLink or Infinity Fabric between all of them."""
    return gpu.form.startswith(_MODULE_FORMS) and gpu.nvlink_bytes_per_s is not None


def link_bytes_per_s(gpu: Gpu, calibration: Calibration) -> Estimate:
    """Bytes a second one GPU sends in an all-reduce, by what its machines link it with."""
    if has_fast_links(gpu) and gpu.nvlink_bytes_per_s is not None:
        return calibration.estimate("nvlink_fraction").scaled(gpu.nvlink_bytes_per_s / 2)
    raw = gpu.pcie_bytes_per_s or calibration.number("pcie_unknown_bytes_per_s")
    return calibration.estimate("pcie_fraction").scaled(raw)


def all_reduce_s(gradient_bytes: float, gpus: int, link: Estimate) -> Estimate:
    """Time of one all-reduce over `gpus` GPUs."""
    moved_bytes = 2 * (gpus - 1) / gpus * gradient_bytes
    return Estimate(
        low=moved_bytes / link.high, likely=moved_bytes / link.likely, high=moved_bytes / link.low
    )


def exposed_s(
    gradient_bytes: float, gpus: int, gpu: Gpu, device_s: float, calibration: Calibration
) -> Estimate:
    """What the exchange adds to a step beyond what backward hides."""
    if gpus == 1:
        return Estimate.exactly(0.0)
    exchange = all_reduce_s(gradient_bytes, gpus, link_bytes_per_s(gpu, calibration))
    hidden_s = calibration.number("overlap_fraction") * device_s
    least_s = calibration.number("least_exposed_fraction") * exchange.likely
    likely_s = max(exchange.likely - hidden_s, least_s)
    return Estimate(
        low=min(max(exchange.low - hidden_s, 0.0), likely_s), likely=likely_s, high=exchange.high
    )
