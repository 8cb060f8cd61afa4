"""Records `operators.json.gz`: products, convolutions and attention of many shapes, and what PyTorch counts for each.

    pip install torch==2.13.0 numpy && pip install -e . && python tests/data/record_operators.py

writes the host trace of one pass over all cases, with their gradients, and `operators_counted.json`: the floating-point
operations that torch.utils.flop_counter gives for each op of another pass that it counts, in the order they ran.
"""

import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from execgraph.tools.capture import capture
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

FOLDER = Path(__file__).parent
Case = Callable[[], Tensor]


def tensor(*shape: int) -> Tensor:
    return torch.ones(shape, requires_grad=True)


def products() -> Iterator[Case]:
    yield lambda: tensor(3, 4) @ tensor(4, 5)
    yield lambda: tensor(2, 3, 4) @ tensor(2, 4, 5)
    yield lambda: tensor(2, 3, 3, 4) @ tensor(4, 5)
    yield lambda: torch.addmm(tensor(5), tensor(3, 4), tensor(4, 5), beta=2)
    yield lambda: torch.baddbmm(tensor(2, 3, 5), tensor(2, 3, 4), tensor(2, 4, 5))
    yield lambda: torch.einsum("bik,bjk->bij", tensor(2, 3, 4), tensor(2, 5, 4))
    yield lambda: functional.linear(tensor(2, 3, 8), tensor(6, 8), tensor(6))
    yield lambda: functional.linear(tensor(3, 8), tensor(6, 8))


def convolutions() -> Iterator[Case]:
    one, two, three = (2, 4, 12), (2, 4, 9, 8), (1, 4, 5, 6, 7)
    for layer, shape in (
        (nn.Conv1d(4, 6, 3), one),
        (nn.Conv1d(4, 6, 3), one[1:]),
        (nn.Conv1d(4, 8, 5, stride=2, padding=2, groups=2), one),
        (nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), one),
        (nn.Conv2d(4, 6, 3), two),
        (nn.Conv2d(4, 8, (3, 2), stride=(2, 1), padding=1, dilation=2, bias=False), two),
        (nn.Conv2d(4, 4, 3, padding=1, groups=4), two),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1), two),
        (nn.ConvTranspose2d(4, 8, 3, groups=2), two),
        (nn.Conv3d(4, 6, 3), three),
        (nn.Conv3d(4, 6, (1, 3, 3), stride=2, groups=2), three),
        (nn.ConvTranspose3d(4, 2, 2, stride=2), three),
    ):
        yield lambda layer=layer, shape=shape: layer(torch.ones(shape, requires_grad=True))
    # the input needs no gradient, or the weight does not
    yield lambda: nn.Conv2d(4, 6, 3)(torch.ones(two))
    yield lambda: functional.conv2d(tensor(*two), torch.ones(6, 4, 3, 3))


def attentions() -> Iterator[Case]:
    for causal in (False, True):
        for keys in (6, 4):
            yield lambda causal=causal, keys=keys: math_attention(
                tensor(2, 3, 6, 8), tensor(2, 3, keys, 8), tensor(2, 3, keys, 8), is_causal=causal
            )
        yield lambda causal=causal: functional.scaled_dot_product_attention(
            tensor(2, 3, 6, 8), tensor(2, 3, 6, 8), tensor(2, 3, 6, 8), is_causal=causal
        )


def math_attention(*tensors: Tensor, **options: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(*tensors, **options)


class EachCount(FlopCounterMode):
    """Keeps each op's count apart, in the order of the ops."""

    def __init__(self) -> None:
        super().__init__(display=False)
        self.each: list[tuple[str, int]] = []

    def _count_flops(self, func_packet: Any, out: Any, args: Any, kwargs: Any) -> Any:
        before = self.get_total_flops()
        result = super()._count_flops(func_packet, out, args, kwargs)
        if func_packet in self.flop_registry:
            self.each.append((str(func_packet).replace(".", "::"), self.get_total_flops() - before))
        return result


def run() -> None:
    for case in (*products(), *convolutions(), *attentions()):
        case().sum().backward()


def main() -> None:
    torch.set_num_threads(1)
    with EachCount() as counted:
        run()
    with tempfile.TemporaryDirectory() as folder:
        with capture(folder, together=True, wait=0, warmup=1, active=1) as recorder:
            for _ in range(2):
                run()
                recorder.step()
        host = gzip.decompress((Path(folder) / "host_rank0.json.gz").read_bytes())
    (FOLDER / "operators.json.gz").write_bytes(gzip.compress(host, mtime=0))
    (FOLDER / "operators_counted.json").write_text(json.dumps(counted.each) + "\n")


if __name__ == "__main__":
    main()
