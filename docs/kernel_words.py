"""What docs/kernel-work.md says of families of ops, and names of the devices whose peaks are known."""

from typing import NamedTuple


class FamilyWords(NamedTuple):
    """How families count operations, some ops of theirs, and which bytes these move, if not all they read and write."""

    families: tuple[str, ...]
    operations: str
    examples: str
    bytes: str = ""


FAMILIES = (
    FamilyWords(
        ("element-wise", "element-wise on lists"),
        "its number for each element of the result, or of the first list",
        "add gelu",
    ),
    FamilyWords(
        ("reduction", "scan", "softmax", "normalisation", "loss"),
        "its number for each element of the argument",
        "sum _softmax native_layer_norm",
    ),
    FamilyWords(
        ("pooling",),
        "one for each element of the window at each position of the result",
        "avg_pool2d",
    ),
    FamilyWords(("copy",), "none", "cat sort"),
    FamilyWords(("set",), "none", "zero_ normal_", "what is written"),
    FamilyWords(("gather",), "none", "embedding index_select", "indices, and twice what is picked"),
    FamilyWords(
        ("scatter",), "one for each element that is added", "index_add_", "indices, values, and what they change"
    ),
    FamilyWords(
        ("embedding bag",), "one for each element of a picked row", "_embedding_bag", "indices, picked rows, results"
    ),
    FamilyWords(
        ("optimizer",),
        "its number for each parameter",
        "_fused_adam_",
        "parameters and states twice, gradients",
    ),
    FamilyWords(("matrix product",), "2 m n k", "mm linear"),
    FamilyWords(
        ("convolution",),
        "2 × elements of the weight × batch × positions of the result",
        "conv2d",
    ),
    FamilyWords(
        ("attention",),
        "2 (q + v) for each head and pair of a query with a key, of widths q and v",
        "_flash_attention_forward",
    ),
)

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
