"""Turns the device trace of a played CUDA run into what other vendors' profilers would have written of the same run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]

HIP_CALLS = {
    "cudaLaunchKernel": "hipLaunchKernel",
    "cudaLaunchKernelExC": "hipExtLaunchKernel",
    "cudaGraphLaunch": "hipGraphLaunch",
    "cudaMemcpyAsync": "hipMemcpyWithStream",
    "cudaMemsetAsync": "hipMemsetAsync",
    "cudaEventRecord": "hipEventRecord",
    "cudaStreamWaitEvent": "hipStreamWaitEvent",
    "cudaStreamSynchronize": "hipStreamSynchronize",
    "cudaDeviceSynchronize": "hipDeviceSynchronize",
}
XPU_CALLS = {
    "cudaLaunchKernel": "urEnqueueKernelLaunch",
    "cudaLaunchKernelExC": "urEnqueueKernelLaunch",
    "cudaMemcpyAsync": "urEnqueueUSMMemcpy",
    "cudaMemsetAsync": "urEnqueueUSMFill",
    "cudaEventRecord": "urEnqueueEventsWaitWithBarrier",
    "cudaStreamWaitEvent": "urEnqueueEventsWait",
    "cudaStreamSynchronize": "urQueueFinish",
    "cudaDeviceSynchronize": "urQueueFinish",
}
MTIA_CALLS = {
    "cudaLaunchKernel": "runFunction - job_prep_and_submit_for_execution",
    "cudaLaunchKernelExC": "runFunction - job_prep_and_submit_for_execution",
    "cudaMemcpyAsync": "enqueueCommand memcpyHtoDAsync",
    "cudaMemsetAsync": "enqueueCommand memsetAsync",
    "cudaEventRecord": "recordEvent",
    "cudaStreamWaitEvent": "enqueueCommand waitOnEvent",
    "cudaStreamSynchronize": "synchronizeStream",
    "cudaDeviceSynchronize": "synchronizeDevice",
}
CALL_CATEGORIES = ("cuda_runtime", "cuda_driver")
ACTIVITY_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


class Vendor(NamedTuple):
    """The category and names of calls, the categories of activities, and what becomes of an activity's row."""

    call_category: str
    calls: dict[str, str]
    activity_categories: dict[str, str]
    activity: Callable[[Row], Row]


def _hip(row: Row) -> Row:
    args = {key: value for key, value in row["args"].items() if key != "context"}
    return {**row, "args": args | {"kind": "Dispatch Kernel", "grid": [1, 1, 1]}}


def _hip_of_2023(row: Row) -> Row:
    """`queue` in place of stream, ids as text, sizes as text."""
    args = {**_hip(row)["args"], "queue": row["args"]["stream"], "correlation": str(row["args"]["correlation"])}
    del args["stream"]
    return {**row, "args": args | ({"bytes": str(args["bytes"])} if "bytes" in args else {})}


def _xpu(row: Row) -> Row:
    kept = {key: row["args"][key] for key in ("correlation", "External id", "device", "bytes") if key in row["args"]}
    return {**row, "args": kept | {"sycl queue": "0x55d0c8", "l0 queue": "0x7f21", "kernel_id": 5}}


def _mtia(row: Row) -> Row:
    """Rows stand in lanes that are not the streams."""
    return {
        **row,
        "tid": 1000 + row["tid"],
        "args": {key: value for key, value in row["args"].items() if key != "context"},
    }


def _same(row: Row) -> Row:
    return row


VENDORS = {
    "ROCm": Vendor("cuda_runtime", HIP_CALLS, {}, _hip),
    "ROCm 2023": Vendor("cuda_runtime", HIP_CALLS, {}, _hip_of_2023),
    "XPU": Vendor("xpu_runtime", XPU_CALLS, {}, _xpu),
    "MTIA": Vendor("mtia_runtime", MTIA_CALLS, dict.fromkeys(ACTIVITY_CATEGORIES, "mtia_ccp_events"), _mtia),
    "PrivateUse1": Vendor("privateuse1_runtime", {}, {}, _same),
    "HPU": Vendor("privateuse1_driver", {}, {"gpu_memcpy": "gpu_memcpy", "kernel": "kernel"}, _same),
}


def as_written_by(vendor: str, trace: dict[str, Any]) -> dict[str, Any]:
    """The trace with the vendor's rows in place of CUDA's; only MTIA's queues have records of synchronisation."""
    rows = list(_rows(VENDORS[vendor], vendor, trace["traceEvents"]))
    return {**trace, "traceEvents": [*rows, *(_queue_rows(trace["traceEvents"]) if vendor == "MTIA" else ())]}


def _rows(vendor: Vendor, name: str, rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        category = row["cat"]
        if category in CALL_CATEGORIES:
            call = {**row, "cat": vendor.call_category, "name": vendor.calls.get(row["name"], row["name"])}
            yield call
            if name == "XPU":
                yield _driver_call(call)
        elif category in ACTIVITY_CATEGORIES:
            yield vendor.activity({**row, "cat": vendor.activity_categories.get(category, category)})
        elif category == "cpu_op" and name == "HPU" and row["name"].startswith("aten::"):
            yield {**row, "cat": "hpu_op"}
        elif category not in ("cuda_sync", "cuda_event"):
            yield row


def _queue_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """That one queue came to a numbered recording, and that another one stood still until then."""
    recorded = {row["args"]["event_id"]: row for row in rows if row["cat"] == "cuda_event"}
    for event, row in recorded.items():
        yield _queue_row("event_record", row, row["ts"], 1, {"stream": row["args"]["stream"], "seq_num": event})
    for row in rows:
        if row["cat"] == "cuda_sync" and row["name"] == "Stream Wait Event":
            event = row["args"]["wait_on_cuda_event_id"]
            awaited = recorded[event]
            args = {"stream": row["args"]["stream"], "wait_on_stream": awaited["args"]["stream"], "seq_num": event}
            yield _queue_row("event_wait", row, row["ts"], max(awaited["ts"] - row["ts"], 1), args)


def _queue_row(name: str, row: Row, start: float, duration: float, args: Row) -> Row:
    place = {"pid": row["pid"], "tid": 1000 + args["stream"], "ts": start, "dur": duration}
    return {
        "ph": "X",
        "cat": "mtia_ccp_events",
        "name": name,
        **place,
        "args": {"device": row["args"]["device"], **args},
    }


def _driver_call(call: Row) -> Row:
    """The Level Zero call inside a SYCL one, under the same correlation."""
    inside = {"ts": call["ts"] + 1, "dur": max(call["dur"] - 2, 0)}
    return {**call, "cat": "xpu_driver", "name": "zeCommandListAppend", **inside}
