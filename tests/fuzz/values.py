"""What stands in changed files in place of what belongs there: of every type and size, and where it hurts."""

from typing import Any

AS_IT_STANDS = "@as it stands@"
"""Before a text that is to stand in JSON without quotes."""
INT32, INT64 = 1 << 31, 1 << 63
NUMBERS = [
    -1, 0, 1, 7, 0.5, 255, 10**17, 1e18, 1 << 62, (1 << 53) + 1, INT32, -INT32 - 1, 2 * INT32,
    INT64 - 1, INT64, -INT64, -INT64 - 1, 2 * INT64, -2 * INT64, 10**30, -(10**30), 1e300, -1e300,
]  # fmt: skip
LITERALS = [
    f"{AS_IT_STANDS}{text}"
    for text in ("1e400", "NaN", "-Infinity", "-0.0", "9" * 400, '"\\ud800"', "1e-400", "[" * 900 + "]" * 900)
]
TENSOR, HUGE_TENSOR = [3, 4, 0, 5, 4, "cuda:0"], [*[10**30] * 5, "cuda:" + "9" * 30]
TEXTS = [
    "", " ", "\0", "é\u2028", "x" * 70_000, "9" * 5000, str(10**30), "-1", "7", "0x7fffffffffffffff", "NaN", "nan", "inf", "None",
    "[1, 2]", "[[[", "{", "[0, 1, ...]", '["cpu", [1e999]]', "Tensor(float)", "rank 7", "0-99999999", "0-3:0",
    "ProfilerStep#" + "9" * 30, "ProfilerStep#-1", "ProfilerStep#", "kernel", "cpu_op", "gpu_memcpy", "cuda_sync", "cuda_runtime",
    "X", "M", "record_param_comms", "nccl:all_reduce", "aten::mm", "## process_group:init ##", "cudaStreamSynchronize",
    "cudaStreamWaitEvent", "cudaGraphLaunch", "ncclDevKernel_SendRecv()", "Stream Wait Event", "all_to_allv", "broadcast", "recv",
]  # fmt: skip
LISTS = [
    [], [None], [[]], [[[[[1]]]]], [1, 2, 3], [1, 1], [10**30] * 9, ["x", 1, None], [{}], TENSOR, HUGE_TENSOR, [TENSOR],
    [HUGE_TENSOR, 1],
]  # fmt: skip
VALUES: list[Any] = [*NUMBERS, *LITERALS, *TEXTS, *LISTS, None, True, False, {}, {"a": {"b": [None]}}]
CHANGES = (1, 1, 2, 3, 5, 10)
"""How many changes a file may have."""
