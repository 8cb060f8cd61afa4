"""What docs/kernel-work.md says of devices whose peaks are known."""

DEVICES = (
    "V100-SXM2-16GB", "V100-PCIE-16GB", "T4", "A100-SXM4-80GB", "A100 80GB PCIe", "A100-SXM4-40GB", "A30", "A40", "A10",
    "RTX A6000", "L40S", "L4", "RTX 4090", "RTX 3090", "GH200 480GB", "H200", "H100 PCIe", "H100 NVL", "H100 80GB HBM3",
    "H20", "B200", "B100", "MI355X", "MI350X", "MI325X", "MI300X", "MI300A", "MI250X", "MI250", "MI210", "MI100",
)  # fmt: skip
"""A recorded name, without its maker, of each device in the table of peaks."""
SELDOM = (
    "V100-PCIE-16GB", "T4", "A100 80GB PCIe", "A30", "A40", "A10", "RTX A6000", "RTX 3090", "GH200 480GB", "H100 NVL",
    "H20", "B100", "MI350X", "MI325X", "MI300A", "MI250", "MI210", "MI100",
)  # fmt: skip
"""The devices that are named below the table, without their peaks."""

COLUMNS = ("fp32", "tf32", "fp16", "fp8", "memory")
"""The peaks in the table."""
