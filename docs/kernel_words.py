"""What docs/kernel-work.md says of each family of ops."""

from typing import NamedTuple


class FamilyWords(NamedTuple):
    """How the operations of a family are counted, the source of that, and which bytes its ops move."""

    operations: str
    source: str
    bytes: str = "tensors read and written"


FAMILIES = {
    "element-wise": FamilyWords(
        "elementary steps, as in the table below, of each element of the result: a sum, product, comparison, "
        "choice, or one call of exp, log, sqrt, erf and their like is a step",
        "the definitions in PyTorch's documentation",
    ),
    "element-wise on lists": FamilyWords(
        "as element-wise, of each element of the first list",
        "the definitions in PyTorch's documentation",
        "tensors of the lists read and written",
    ),
    "reduction": FamilyWords(
        "elementary steps of each element of the argument",
        "the definitions of the ops",
    ),
    "scan": FamilyWords(
        "elementary steps of each element of the argument",
        "the definitions of the ops",
    ),
    "softmax": FamilyWords(
        "5 of each element: maximum, difference, exp, sum, and quotient or difference; backward 4",
        "the definitions of the ops",
    ),
    "normalisation": FamilyWords(
        "8 of each element: mean, variance (3), scaling (2), weight and bias (2); with given statistics 4; of"
        " the root of the mean square 4; backward 13: the normalised value (2), sums (5), product with the "
        "weight, gradient (5); of the root of the mean square 9",
        "the definitions of the ops",
    ),
    "loss": FamilyWords(
        "elementary steps of each element of the argument, of nll_loss of each target",
        "the definitions of the ops",
    ),
    "pooling": FamilyWords(
        "a step of each element of the window at each position of the result, of adaptive pooling and "
        "backward of each element of the input",
        "the definitions of the ops",
    ),
    "copy": FamilyWords(
        "none; comparisons of sorting and searching are not counted",
        "the definitions of the ops",
    ),
    "set": FamilyWords(
        "none; drawing random numbers is not counted",
        "the definitions of the ops",
        "tensors written",
    ),
    "scatter": FamilyWords(
        "what is added, a step of each element; otherwise none",
        "the definitions of the ops",
        "indices and values read; in place as much written as there are values, and read before where they "
        "are added; otherwise the whole tensor",
    ),
    "gather": FamilyWords(
        "none",
        "the definitions of the ops",
        "indices read, what is picked read and written",
    ),
    "embedding bag": FamilyWords(
        "a step of each element of a picked row",
        "the definitions of the ops",
        "indices, picked rows, results",
    ),
    "optimizer": FamilyWords(
        "elementary steps of each parameter: SGD 4 with momentum, 2 without; Adagrad 7; Adam 13, AdamW 14: "
        "mean (3), mean square (4), its root, correction and epsilon (3), step (3), weight decay; finding and"
        " removing a scale 2",
        "the algorithms in the documentation of torch.optim",
        "parameters, gradients and states read, parameters and states written; gradients too where a scale is removed",
    ),
    "matrix product": FamilyWords(
        "2 m n k of each (m, k) by (k, n) product; addends, scales and activations are not counted",
        "`mm_flop`, `bmm_flop`, `_scaled_mm_flop` of torch.utils.flop_counter",
    ),
    "convolution": FamilyWords(
        "2 x the weight's elements x batch x positions of the result, transposed of the input; the weight's "
        "gradient 2 x batch x channels in x channels out x positions of both, whatever the groups; padding "
        "counts, the bias does not",
        "`conv_flop_count`, `conv_backward_flop` of torch.utils.flop_counter; of `cudnn_convolution` it takes"
        " the argument `benchmark` for `transposed`, this does not",
    ),
    "attention": FamilyWords(
        "2 (q + v) of each head and pair of a query with a key, q and v their widths; backward 2 (3 q + 2 v),"
        " the scores once more included; of a causal one the pairs up to the diagonal alone, softmax and "
        "dropout are not counted",
        "`sdpa_flop_count`, `sdpa_backward_flop_count` of torch.utils.flop_counter, which count all pairs of "
        "a causal one, too",
    ),
    "Triton kernel": FamilyWords(
        "not known, and absent",
        "the arguments that the kernel was launched with",
        "the tensors among its arguments, each once",
    ),
}
