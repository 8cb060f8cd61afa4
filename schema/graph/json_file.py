"""Writes a graph in memory as JSON: what trace-jsonize writes of its .et file."""

import io

from ..io import open_output
from .et_file import frames_of
from .framing import read_frames
from .json_form import METADATA, NODE
from .nodes import NodeColumns


def write_json(graph: NodeColumns, path: str) -> None:
    """Writes the graph as JSON with one node per line, whole or not at all. O(bytes).

    Raises DataError when the graph holds what the format cannot, or the file cannot be written.
    """
    with open_output(path) as out:
        frames = frames_of(graph)
        metadata, *_ = _messages(next(frames), path)
        out.write(b'{"metadata":%s,"nodes":[' % METADATA.decode(metadata))
        before = b"\n"
        for node in (node for some in frames for node in _messages(some, path)):
            out.write(before + NODE.decode(node))
            before = b",\n"
        out.write(b"\n]}\n")


def _messages(frames: bytes | memoryview, path: str) -> list[bytes]:
    return [
        block.data[start:end]
        for block in read_frames(io.BytesIO(frames), path)
        for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    ]
