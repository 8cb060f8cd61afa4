"""What a recorded communication is to a simulator: node type, collective type and bytes, from tables of names and dtypes."""

import re
from typing import NamedTuple

from ..schema.graph import CollectiveType, NodeType
from ..schema.linked import Communication


class Meaning(NamedTuple):
    """`type` is None for send and receive, which have none, and for communication of unknown type."""

    node: NodeType
    type: CollectiveType | None
    size: int


# by the recorded name without case, underscores and prefixes; the first that the name starts with
_COLLECTIVES = (
    ("allreduce", CollectiveType.ALL_REDUCE),
    ("reducescatter", CollectiveType.REDUCE_SCATTER),
    ("allgather", CollectiveType.ALL_GATHER),
    ("alltoall", CollectiveType.ALL_TO_ALL),
    ("broadcast", CollectiveType.BROADCAST),
    ("gather", CollectiveType.GATHER),
    ("scatter", CollectiveType.SCATTER),
    ("reduce", CollectiveType.REDUCE),
    ("barrier", CollectiveType.BARRIER),
)
_POINT_TO_POINT = (
    ("send", NodeType.COMM_SEND),
    ("isend", NodeType.COMM_SEND),
    ("recv", NodeType.COMM_RECV),
    ("irecv", NodeType.COMM_RECV),
)
_KERNEL = re.compile(
    r"(AllReduce|ReduceScatter|AllGather|AllToAll|Broadcast|Reduce|multimem_all_reduce|cross_device_reduce)",
    re.IGNORECASE,
)
_KERNEL_MEANING = {"multimemallreduce": "allreduce", "crossdevicereduce": "allreduce"}

_BYTES = {
    8: "double float64 long longint int64 uint64 complexfloat complex64 int64t unsignedlong",
    16: "complexdouble complex128",
    4: "float float32 int int32 uint32 unsignedint complexhalf complex32 qint32",
    2: "half float16 bfloat16 short int16 uint16 shortint unsignedshort",
    1: "byte char bool int8 uint8 signedchar unsignedchar qint8 quint8 float8e4m3fn float8e5m2 float8e4m3fnuz float8e5m2fnuz float8e8m0fnu",
}
BYTES_OF_DTYPE = {name: size for size, names in _BYTES.items() for name in names.split()}


def bytes_per_element(dtype: str) -> int:
    """Size of a dtype by any of the names PyTorch writes; 1 where the name is unknown.

    >>> bytes_per_element("c10::BFloat16"), bytes_per_element("Float8_e4m3fn"), bytes_per_element("long int")
    (2, 1, 8)
    """
    plain = re.sub(r"c10::|[^a-z0-9]", "", dtype.lower().replace("c10::", ""))
    return BYTES_OF_DTYPE.get(plain, 1)


def peers(recorded: Communication, node: NodeType, own_rank: int) -> tuple[int, int]:
    """Global (source, destination) ranks of a send or receive, -1 where not recorded; peers are recorded by their place in the group."""
    peer = recorded.target if node is NodeType.COMM_SEND else recorded.source
    if 0 <= peer < len(recorded.ranks):
        peer = recorded.ranks[peer]
    return (own_rank, peer) if node is NodeType.COMM_SEND else (peer, own_rank)


def meaning(recorded: Communication, kernel: str) -> Meaning | None:
    """What the communication is, by its recorded name, by the kernel's name as the last resort; None if neither tells."""
    name = re.sub(r"[^a-z0-9]", "", recorded.name.lower()).removeprefix("nccl")
    from_kernel = _KERNEL.search(kernel) if not name else None
    if from_kernel:
        name = re.sub(r"[^a-z]", "", from_kernel.group().lower())
        name = _KERNEL_MEANING.get(name, name)
    size = max(recorded.in_elements, 0) * bytes_per_element(recorded.dtype)
    for prefix, node in _POINT_TO_POINT:
        if name.startswith(prefix):
            elements = (
                recorded.in_elements if node is NodeType.COMM_SEND else max(recorded.out_elements, recorded.in_elements)
            )
            return Meaning(node, None, max(elements, 0) * bytes_per_element(recorded.dtype))
    for prefix, kind in _COLLECTIVES:
        if name.startswith(prefix):
            return Meaning(NodeType.COMM_COLL, kind, size)
    return None
