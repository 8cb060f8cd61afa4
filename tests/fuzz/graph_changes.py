"""Changes a graph in the fields of its messages: negative durations, attributes twice, circular dependencies."""

from collections.abc import Callable
from random import Random

from execgraph.schema.graph import execution_graph_pb2 as pb, varint

from fuzz.texts import TEXT_WAYS

ODD = -1, 0, 1, 1 << 31, (1 << 63) - 1, -(1 << 63), 10**18, -(10**15), 7
SEVERAL = 1, 1, 3, 20, 10**6
Nodes = list[pb.Node]


def change_fields(content: bytes, random: Random) -> tuple[bytes, str]:
    """The graph with odd fields, and which, in words."""
    metadata, nodes = _read(content)
    ways = random.sample(FIELD_WAYS, random.choice([1, 1, 2, 3]))
    for way in ways:
        way(metadata, nodes, random)
    messages = [metadata, *nodes]
    if random.random() < 0.05:
        random.shuffle(messages)
    text = b"".join(varint(len(one)) + one for one in (message.SerializeToString() for message in messages))
    return text, ", ".join(way.__name__.strip("_") for way in ways)


def _read(content: bytes) -> tuple[pb.GlobalMetadata, Nodes]:
    frames, at = [], 0
    while at < len(content):
        size = shift = 0
        while True:
            byte = content[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        frames.append(content[at : at + size])
        at += size
    return pb.GlobalMetadata.FromString(frames[0]), [pb.Node.FromString(frame) for frame in frames[1:]]


def _some(nodes: Nodes, random: Random) -> Nodes:
    return random.sample(nodes, min(len(nodes), random.choice(SEVERAL)))


def _set(attribute: pb.AttributeProto, value: int, random: Random) -> None:
    """Gives an attribute a number as a value of any type; as what it should be most often."""
    kind = random.choice(["int64_val", "int64_val", "int64_list", *KINDS])
    if kind == "int64_list":
        attribute.int64_list.values.extend([value] * random.choice([0, 1, 3]))
    else:
        setattr(attribute, kind, KINDS[kind](value))


KINDS: dict[str, Callable[[int], object]] = {
    "int64_val": int, "int32_val": lambda number: number % (1 << 31), "uint64_val": lambda number: number % (1 << 64),
    "double_val": float, "string_val": str, "bool_val": bool, "bytes_val": lambda number: str(number).encode(),
}  # fmt: skip


def _attributes(nodes: Nodes, *names: str) -> list[pb.AttributeProto]:
    return [attribute for node in nodes for attribute in node.attr if not names or attribute.name in names]


def _odd_times(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    names = random.sample(["duration_ns", "start_time_ns", "gap_ns", "overlap_ns", "latency_ns", "chain_gap_ns"], 2)
    value = random.choice(ODD)
    for attribute in _attributes(_some(nodes, random), *names):
        attribute.int64_val = value
    for node in _some(nodes, random):
        node.duration_micros = node.start_time_micros = value % (1 << 64)


def _odd_types(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    name = random.choice([attribute.name for attribute in _attributes(nodes)])
    for attribute in _attributes(_some(nodes, random), name):
        _set(attribute, random.choice(ODD), random)


def _doubled_attributes(metadata: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    for message in (*_some(nodes, random), metadata):
        if message.attr:
            again = message.attr.add()
            again.CopyFrom(random.choice(message.attr))
            if random.random() < 0.5:
                _set(again, random.choice(ODD), random)


def _lost_attributes(metadata: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    name = random.choice([attribute.name for attribute in (*metadata.attr, *_attributes(nodes))])
    for message in (*_some(nodes, random), metadata):
        kept = [attribute for attribute in message.attr if attribute.name != name]
        del message.attr[:]
        message.attr.extend(kept)


def _odd_metadata(metadata: pb.GlobalMetadata, _: Nodes, random: Random) -> None:
    metadata.version = random.choice(["", "0.1", "99", "\n", metadata.version])
    if metadata.attr:
        _set(random.choice(metadata.attr), random.choice(ODD), random)


def _dangling(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    for node in _some(nodes, random):
        random.choice([node.ctrl_deps, node.data_deps]).append(
            random.choice([0, 1 << 40, (1 << 64) - 1, len(nodes) + 1])
        )


def _circular(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    """Dependencies on what comes later, on the node itself, on all."""
    ids = [node.id for node in nodes]
    for node in _some(nodes, random):
        deps = random.choice([node.ctrl_deps, node.data_deps])
        deps.extend(random.choice([[node.id], [random.choice(ids)], [ids[-1]], random.sample(ids, min(len(ids), 50))]))


def _repeated_dependencies(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    for node in _some(nodes, random):
        node.data_deps.extend(list(node.data_deps) * random.choice([1, 100]))


def _lost_dependencies(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    for node in _some(nodes, random):
        del node.data_deps[random.choice([0, -1, 1]) :]
        del node.ctrl_deps[:]


def _other_kinds(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    for attribute in _attributes(_some(nodes, random), "data_dep_kinds"):
        kinds = list(attribute.int32_list.values)
        same = [[kind] * len(kinds) for kind in (-1, 0, 1 << 30)]
        attribute.int32_list.values[:] = random.choice([[], [*kinds, 1], kinds[:-1], *same])


def _shared_ids(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    for node in _some(nodes, random):
        node.id = random.choice([0, 1, 2, nodes[0].id, (1 << 64) - 1, random.choice(nodes).id])


def _other_order(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    random.choice([nodes.reverse, lambda: random.shuffle(nodes)])()


def _other_types(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    kind = random.choice([*range(8), 8, 99])
    for node in _some(nodes, random):
        node.type = kind  # type: ignore[assignment]


def _odd_communication(_: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    name = random.choice(
        ["comm_type", "comm_size", "comm_seq", "comm_src", "comm_dst", "comm_tag", "pg_name", "pg_ranks", "pg_recorded"]
    )
    for node in _some([node for node in nodes if node.type >= pb.COMM_SEND_NODE] or nodes, random):
        found = [attribute for attribute in node.attr if attribute.name == name] or [node.attr.add(name=name)]
        _set(found[0], random.choice(ODD), random)


def _texts(metadata: pb.GlobalMetadata, nodes: Nodes, random: Random) -> None:
    way = random.choice(TEXT_WAYS)
    for node in _some(nodes, random)[:20]:
        node.name = _text(way, node.name, random)
        node.inputs.values = _text(way, node.inputs.values, random)
    for attribute in _attributes(nodes[:20]):
        if attribute.WhichOneof("value") == "string_val":
            attribute.string_val = _text(way, attribute.string_val, random)


def _text(way: Callable[[str, Random], str], old: str, random: Random) -> str:
    return way(old, random)[:50_000].encode("utf-8", "replace").decode()


FIELD_WAYS: tuple[Callable[[pb.GlobalMetadata, Nodes, Random], object], ...] = (
    _odd_times, _odd_types, _doubled_attributes, _lost_attributes, _odd_metadata, _dangling, _circular, _repeated_dependencies,
    _lost_dependencies, _other_kinds, _shared_ids, _other_order, _other_types, _odd_communication, _texts,
)  # fmt: skip
