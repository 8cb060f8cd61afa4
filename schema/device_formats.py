"""What formats of device traces that are no JSON call what Kineto names: tables of their readers and writers."""

EVENT_IN_GRAPH = "graph_event_node"
MEMORY_KINDS = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
"""By CUPTI's number."""
COPY_KINDS = ("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
"""By the number of Nsight Systems; what follows is migration of unified memory."""
SYNC_KINDS = ("Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
"""By the number of Nsight Systems."""
CUPTI, NVTX = "CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS"
"""How tables of Nsight Systems begin, and the one of ranges."""
THREADS = 1 << 24
"""What a process is shifted by in a serialised global id of Nsight Systems; threads have smaller numbers."""


def process_of(number: int | None) -> int:
    """Returns the process of a serialised global id, which holds that of the thread in its last bits."""
    return (number or 0) // THREADS % THREADS


COLUMNS = {
    "deviceId": "device", "contextId": "context", "streamId": "stream", "correlationId": "correlation",
    "graphNodeId": "graph node id", "bytes": "bytes",
}  # fmt: skip
"""The arguments of rows by the column of Nsight Systems."""
OF_DEVICES = {
    "id": "id", "name": "name", "totalMemory": "totalGlobalMem", "computeMajor": "computeMajor",
    "computeMinor": "computeMinor", "smCount": "numSms",
}  # fmt: skip
"""The properties of devices by the column of Nsight Systems."""
STAGES = {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Annotation": "gpu_user_annotation",
    "EventRecord": EVENT_IN_GRAPH, "HostNode": "graph_host_node",
}  # fmt: skip
"""The categories of activities by the render stage of Perfetto's traces."""
STAGE_NUMBERS = {
    "device id": "device", "stream id": "stream", "context id": "context", "correlation": "correlation",
}  # fmt: skip
"""The arguments of activities by their name in Perfetto's traces."""
