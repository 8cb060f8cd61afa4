"""What docs/kernel-work.md says of each family of ops, and names of the devices whose peaks are known."""

from typing import NamedTuple


class FamilyWords(NamedTuple):
    """How the operations of a family are counted, and which bytes its ops move, if not all that they read and write."""

    operations: str
    bytes: str = ""


FAMILIES = {
    "element-wise": FamilyWords(
        "steps of each element of the result: a sum, product, comparison or choice, or a call of exp, log and the like"
    ),
    "element-wise on lists": FamilyWords("the same, of each element of the first list"),
    "reduction": FamilyWords("steps of each element of the argument"),
    "scan": FamilyWords("steps of each element of the argument"),
    "softmax": FamilyWords("steps of each element: maximum, difference, exp, sum, and quotient or difference"),
    "normalisation": FamilyWords(
        "steps of each element: mean, variance (3), scaling (2), weight and bias (2); of batch norm 8, or 4 with given"
        " statistics"
    ),
    "loss": FamilyWords("steps of each element of the argument, of nll_loss of each target"),
    "pooling": FamilyWords(
        "a step of each element of the window at each position of the result; adaptive and backward of each element of"
        " the input"
    ),
    "copy": FamilyWords("none, also of sorting and searching"),
    "set": FamilyWords("none, also of random numbers", "written tensors"),
    "scatter": FamilyWords(
        "a step of each element that is added",
        "indices and values read; in place as much written, and read if added to; else the whole tensor",
    ),
    "gather": FamilyWords("none", "indices, and what is picked, read and written"),
    "embedding bag": FamilyWords("a step of each element of a picked row", "indices, picked rows, results"),
    "optimizer": FamilyWords(
        "steps of each parameter; SGD 4 with momentum, 2 without",
        "parameters, gradients and states read, parameters and states written; gradients, too, if scaled",
    ),
    "matrix product": FamilyWords("2 m n k; addends, scales and activations are not counted"),
    "convolution": FamilyWords(
        "2 x the weight's elements x batch x positions of the result (transposed: of the input), without the bias; of"
        " the weight's gradient 2 x batch x both channels x positions of both"
    ),
    "attention": FamilyWords(
        "2 (q + v) of each head and pair of a query with a key, q and v their widths; backward 2 (3 q + 2 v)"
    ),
    "Triton kernel": FamilyWords("unknown", "the tensors among its arguments"),
}

DEVICES = (
    "V100-SXM2-16GB", "V100-PCIE-16GB", "T4", "A100-SXM4-80GB", "A100 80GB PCIe", "A100-SXM4-40GB", "A30", "A40", "A10",
    "RTX A6000", "L40S", "L4", "RTX 4090", "RTX 3090", "GH200 480GB", "H200", "H100 PCIe", "H100 NVL", "H100 80GB HBM3",
    "H20", "B200", "B100", "MI355X", "MI350X", "MI325X", "MI300X", "MI300A", "MI250X", "MI250", "MI210", "MI100",
)  # fmt: skip
"""A recorded name, without its maker, of each device in the table of peaks."""
