"""The meaning of a recorded communication: node type, collective type and bytes, from tables of names and dtypes."""

import re
from typing import NamedTuple

from ...schema.graph import CollectiveType, NodeType
from ...schema.linked import Communication

LARGEST = (1 << 63) - 1


class Meaning(NamedTuple):
    """What a communication is. `type` is None for send and receive; `size` is in bytes."""

    node: NodeType
    type: CollectiveType | None
    size: int


# by the recorded name without case, underscores and library; the first that the name starts with
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
_MESSAGES = (
    ("send", NodeType.COMM_SEND),
    ("isend", NodeType.COMM_SEND),
    ("recv", NodeType.COMM_RECV),
    ("irecv", NodeType.COMM_RECV),
)
# in a kernel's name, where "gather" or "send" may mean anything
_IN_KERNEL = (
    *_COLLECTIVES[:5],
    ("crossdevicereduce", CollectiveType.ALL_REDUCE),
    ("kernelreduce", CollectiveType.REDUCE),
    ("ncclreduce", CollectiveType.REDUCE),
)

_BYTES = {
    16: "complex128 complexdouble",
    8: "double float64 long longint longlong int64 int64t uint64 uint64t unsignedlong unsignedlonglong unsignedlongint"
    " complexfloat complex64",
    4: "float float32 int int32 int32t uint32 uint32t unsignedint complexhalf complex32 qint32",
    2: "half float16 bfloat16 short shortint int16 int16t uint16 uint16t unsignedshort unsignedshortint bits16",
    1: "byte char bool int8 int8t uint8 uint8t signedchar unsignedchar qint8 quint8 quint4x2 quint2x4 bits1x8 bits2x4 "
    "bits4x2 bits8"
    " float8e4m3fn float8e5m2 float8e4m3fnuz float8e5m2fnuz float8e8m0fnu float4e2m1fnx2"
    " int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7",
}
BYTES_OF_DTYPE = {name: size for size, names in _BYTES.items() for name in names.split()}


def bytes_per_element(dtype: str) -> int:
    """Returns the size of a dtype by any of the names that PyTorch writes; 1 for an unknown name.

    >>> bytes_per_element("c10::BFloat16"), bytes_per_element("Float8_e4m3fn"), bytes_per_element("long int")
    (2, 1, 8)
    """
    return BYTES_OF_DTYPE.get(_plain_dtype(dtype), 1)


def is_known_dtype(dtype: str) -> bool:
    """Returns whether the element size of a dtype is known.

    >>> is_known_dtype("c10::BFloat16"), is_known_dtype("quantum")
    (True, False)
    """
    return _plain_dtype(dtype) in BYTES_OF_DTYPE


def _plain_dtype(dtype: str) -> str:
    return re.sub(r"c10::|torch\.|[^a-z0-9]", "", dtype.lower())


def peers(recorded: Communication, node: NodeType, own_rank: int) -> tuple[int, int]:
    """Returns the global (source, destination) ranks of a send or receive, -1 where not recorded."""
    return (own_rank, recorded.target) if node is NodeType.COMM_SEND else (recorded.source, own_rank)


def meaning(recorded: Communication, kernel: str) -> Meaning | None:
    """Returns the meaning of a communication by its recorded name, or else by the kernel's name; None if neither tells.

    Coalesced messages are described by the first receive, or else the first send.
    """
    if recorded.coalesced:
        parts = [part for part in (meaning(part, "") for part in recorded.coalesced) if part]
        return max(parts, key=lambda part: part.node is NodeType.COMM_RECV, default=None)
    kind = _kind(recorded.name)
    kind = _kind_of_kernel(kernel) if kind is None else kind
    if kind is None:
        return None
    size = min(_elements(recorded, kind) * bytes_per_element(recorded.dtype), LARGEST)
    return Meaning(kind, None, size) if isinstance(kind, NodeType) else Meaning(NodeType.COMM_COLL, kind, size)


def _kind(name: str) -> NodeType | CollectiveType | None:
    """Returns the type for a name such as allreduce, _allgather_base, all_to_allv, nccl:recv or xccl::broadcast."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower().rpartition(":")[2]).removeprefix("nccl")
    kinds = (kind for prefix, kind in (*_MESSAGES, *_COLLECTIVES) if plain.startswith(prefix))
    return next(kinds, None)


def _kind_of_kernel(kernel: str) -> NodeType | CollectiveType | None:
    """Returns the type for the part of a kernel's name before its parameters."""
    name = re.split(r"[(<]", kernel.removeprefix("void "), maxsplit=1)[0]
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    kind = _kind(name) if "::" in name else None
    return next((kind for text, kind in _IN_KERNEL if text in plain), None) if kind is None else kind


def _elements(recorded: Communication, kind: NodeType | CollectiveType) -> int:
    """Returns the number of elements that the rank sends, on which the simulated time depends; by those that it
    receives where the sent ones are not recorded.
    """
    sent, received = max(recorded.in_elements, 0), max(recorded.out_elements, 0)
    members = len(recorded.ranks) or max(recorded.group_size, 1)
    if kind is NodeType.COMM_RECV:
        return received or sent
    if kind in (CollectiveType.ALL_GATHER, CollectiveType.GATHER):
        return sent or received // members
    if kind in (CollectiveType.REDUCE_SCATTER, CollectiveType.SCATTER):
        return sent or received * members
    return sent or received
