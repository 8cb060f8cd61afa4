"""Peaks of devices by recorded name: dense operations at boost clock by number format, memory traffic, connections.

Rates are those of matrix engines, on which matrix products and attention run; fp32 is that of the ordinary units,
tf32 that of the matrix engines where PyTorch was allowed to use it.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .columns import Floats, Int64
FORMATS = {8: ("fp64",), 4: ("fp32",), 2: ("fp16",), 1: ("fp8", "int8")}
"""The formats by the bytes of an element, the first that the device has; bfloat16 runs at the rate of fp16."""
CONNECTIONS = (
    (r"V100|\bT4\b|RTX 20|Quadro RTX", 16.0),
    (r"A100|A800|\bA30\b|\bA40\b|\bA10G?\b|RTX A\d000|\bL40?S?\b|RTX [34]0|MI100|MI2\d\d", 32.0),
    (r"(?<!G)H100|(?<!G)H200|H800|H20\b|B[12]00|RTX 50|MI3\d\d", 64.0),
)
"""GB/s (10**9 bytes) each way of 16 lanes of PCI Express 3, 4 and 5, by what the names of their devices match."""
VARIANT = re.compile(r"Laptop|Max-Q|Mobile|GRID|MIG|\bVF\b|-\d+[ABCQ]\b|RTX [345]0[56]0")
"""Devices that share their connection, or have fewer lanes."""
OF_CONNECTION = 0.85
"""The share of it that large copies reach: an H100 copies 54.5 of 64 GB/s from pinned memory."""


class Peak(NamedTuple):
    """TFLOP/s by number format (0: not supported, or not known), and memory traffic in GB/s (10**9 bytes)."""

    fp64: float
    fp32: float
    tf32: float
    fp16: float
    fp8: float
    int8: float
    memory: float

    def tflops(self, element: "Int64") -> "Floats":
        """Returns the peak for operands of so many bytes an element; 0 where the device or the table has none."""
        import numpy as np  # command lines know the peaks by name without it

        peaks = np.zeros(max(FORMATS) + 1)
        for size, formats in FORMATS.items():
            peaks[size] = next(filter(None, (getattr(self, name) for name in formats)), 0.0)
        inside = (element >= 0) & (element < len(peaks))
        return np.where(inside, peaks[np.where(inside, element, 0)], 0.0)


class Device(NamedTuple):
    """A device: what its recorded name matches without its maker, its multiprocessors (0: not known), and its peak."""

    pattern: str
    multiprocessors: int
    peak: Peak


# fmt: off
PEAKS = (
    #                                                     fp64   fp32   tf32   fp16    fp8    int8   GB/s
    Device(r"V100(-SXM[23]|-DGXS)?(-\d\dGB)?(-LS)?",    80, Peak( 7.8,  15.7,   0.0, 125.0,    0.0,   62.8,  900)),
    Device(r"V100-PCIE(-\d\dGB)?",                     80, Peak( 7.0,  14.0,   0.0, 112.0,    0.0,   56.0,  900)),
    Device(r"T4",                                      40, Peak( 0.25,  8.1,   0.0,  65.0,    0.0,  130.0,  320)),
    Device(r"A100(-SXM4?)?[- ]80GB|A800(-SXM4-80GB)?", 108, Peak(19.5,  19.5, 156.0, 312.0,    0.0,  624.0, 2039)),
    Device(r"A[18]00( 80GB PCIe|-PCIE-80GB)",          108, Peak(19.5,  19.5, 156.0, 312.0,    0.0,  624.0, 1935)),
    Device(r"A100(-SXM4?|-PCIE|-PG509-200)?(-40GB)?",  108, Peak(19.5,  19.5, 156.0, 312.0,    0.0,  624.0, 1555)),
    Device(r"A30",                                     56, Peak(10.3,  10.3,  82.0, 165.0,    0.0,  330.0,  933)),
    Device(r"A40",                                     84, Peak( 0.58, 37.4,  74.8, 149.7,    0.0,  299.3,  696)),
    Device(r"A10",                                     72, Peak( 0.49, 31.2,  62.5, 125.0,    0.0,  250.0,  600)),
    Device(r"RTX A6000",                               84, Peak( 0.60, 38.7,  77.4, 154.8,    0.0,  309.7,  768)),
    Device(r"L40S",                                   142, Peak( 1.4,  91.6, 183.0, 362.0,  733.0,  733.0,  864)),
    Device(r"L4",                                      58, Peak( 0.47, 30.3,  60.0, 121.0,  242.5,  242.5,  300)),
    Device(r"RTX 4090",                               128, Peak( 1.3,  82.6,  82.6, 165.2,  330.3,  660.6, 1008)),
    Device(r"RTX 3090",                                82, Peak( 0.56, 35.6,  35.6,  71.0,    0.0,  284.0,  936)),
    Device(r"GH200( \d+GB)?",                         132, Peak(67.0,  67.0, 494.7, 989.4, 1978.9, 1978.9, 4000)),
    Device(r"H200",                                   132, Peak(67.0,  67.0, 494.7, 989.4, 1978.9, 1978.9, 4800)),
    Device(r"H100 PCIe",                              114, Peak(51.0,  51.0, 378.0, 756.0, 1513.0, 1513.0, 2039)),
    Device(r"H100 NVL",                               132, Peak(60.0,  60.0, 417.5, 835.5, 1670.5, 1670.5, 3938)),
    Device(r"H[18]00([- ]SXM5)?([- ]80GB)?( HBM3)?",  132, Peak(67.0,  67.0, 494.7, 989.4, 1978.9, 1978.9, 3352)),
    Device(r"H20",                                     78, Peak( 1.0,  44.0,  74.0, 148.0,  296.0,  296.0, 4000)),
    Device(r"G?B200",                                 148, Peak(37.0,  75.0,1100.0,2250.0, 4500.0, 4500.0, 8000)),
    Device(r"B100",                                     0, Peak(30.0,  60.0, 900.0,1800.0, 3500.0, 3500.0, 8000)),
    Device(r"MI355X?",                                256, Peak(78.6, 157.3,   0.0,2516.6, 5033.2, 5033.2, 8000)),
    Device(r"MI350X?",                                256, Peak(72.1, 144.2,   0.0,2306.9, 4613.7, 4613.7, 8000)),
    Device(r"MI325X?",                                304, Peak(163.4,163.4, 653.7,1307.4, 2614.9, 2614.9, 6000)),
    Device(r"MI300X",                                 304, Peak(163.4,163.4, 653.7,1307.4, 2614.9, 2614.9, 5300)),
    Device(r"MI300A",                                 228, Peak(122.6,122.6, 490.3, 980.6, 1961.2, 1961.2, 5300)),
    Device(r"MI250X( ?/ ?MI250)?",                    110, Peak(47.9,  47.9,   0.0, 191.5,    0.0,  191.5, 1638)),
    Device(r"MI250",                                  104, Peak(45.3,  45.3,   0.0, 181.0,    0.0,  181.0, 1638)),
    Device(r"MI210",                                  104, Peak(45.3,  45.3,   0.0, 181.0,    0.0,  181.0, 1638)),
    Device(r"MI100",                                  120, Peak(11.5,  46.1,   0.0, 184.6,    0.0,  184.6, 1229)),
)
# fmt: on
"""MI250 and MI250X as one of their two dies, which is what the profiler calls a device."""
NAME = re.compile(
    r"(?:NVIDIA |AMD |Tesla |GeForce |Instinct )*(?P<device>.*?)(?P<part> MIG [^(]*| VF)?(?P<form> OAM| SXM\d?)?"
    r"(?: \((?P<multiprocessors>\d+) multiprocessors\))?"
)
"""A name that is recorded or from `named_by_size`. Devices by other names have other clocks, memory or shares."""


def named_by_size(name: str, multiprocessors: int) -> str:
    """Returns a recorded name, with the number of multiprocessors where it tells what share of a known device it is."""
    device, is_part, _ = _device(name)
    tells = device and multiprocessors > 0 and (is_part or multiprocessors != device.multiprocessors)
    return f"{name} ({multiprocessors} multiprocessors)" if tells else name


def peak_of(name: str) -> Peak | None:
    """Returns the peak of the device of this name, of `named_by_size`; None where the table lacks it.

    A device with other multiprocessors than the whole one has their share of the operations; its memory is not known.

    >>> peak_of("A100-SXM4-40GB MIG 1g.5gb"), peak_of("A100-SXM4-40GB MIG 3g.20gb (54 multiprocessors)").fp16
    (None, 156.0)
    """
    device, is_part, size = _device(name)
    count = int(size or 0)
    if device is None or (is_part and not count) or (count and not device.multiprocessors):
        return None
    share = count / device.multiprocessors if count else 1.0
    return device.peak if share == 1 else Peak._make([*(share * rate for rate in device.peak[:-1]), 0.0])


def _device(name: str) -> tuple[Device | None, bool, str | None]:
    """Returns the device of the table that has this name, whether that is a part of it, and its size where named."""
    match = NAME.fullmatch(name)
    found = match and next((device for device in PEAKS if re.fullmatch(device.pattern, match["device"])), None)
    return found or None, bool(match and match["part"]), match and match["multiprocessors"]


def pinned_rate(name: str) -> float:
    """Returns the GB/s that a device of this name can copy from pinned memory of its host; 0 if not known."""
    rates = (OF_CONNECTION * rate for pattern, rate in CONNECTIONS if re.search(pattern, name))
    return 0.0 if VARIANT.search(name) else next(rates, 0.0)
