"""Writes docs/graph.md, docs/kernel-work.md, README.md of schema/graph and schema/linked, and a list of tools/commands.

The tables are those of the code; their words are in graph_words.py, kernel_words.py, linked_words.py and
counted_words.py. Run it so: python docs/formats.py
"""

import re
import sys
import types
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import groupby, takewhile
from pathlib import Path
from textwrap import fill
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from execgraph.schema.device_peaks import PEAKS, peak_of
from execgraph.schema.graph import execution_graph_pb2
from execgraph.schema.graph.codec import FORMAT_VERSION
from execgraph.schema.graph.nodes import ATTRIBUTES, CollectiveType
from execgraph.schema.linked.layout import INTEGER_ATTRIBUTES
from execgraph.schema.reasons import WORDS as REASONS, Counts

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from counted_words import COUNTED, Meanings  # noqa: E402
from graph_words import DELAY_CAUSES, FIELDS, KINDS, MEANINGS, METADATA, TYPES, Where  # noqa: E402
from kernel_words import COLUMNS, DEVICES, SELDOM  # noqa: E402
from linked_words import ACTIVITIES, KNOWN_BY, OPS, RECORDS, Member, Record  # noqa: E402

PROTO = Path(execution_graph_pb2.__file__).with_name("execution_graph.proto")
WORDS = {
    int: "integer",
    float: "number",
    str: "text",
    Any: "any",
    type(None): "null",
    msgspec.Raw: "tensors",
    Counts: "{text: integer}",
}


GRAPH = """
A graph file (`graph.0.et`) has what a rank ran, as nodes, and what each node waited for. `trace-jsonize graph.0.et -o
graph.0.json` turns it into [JSON](#the-json-form), and `execgraph.read_graph` loads it in Python. The file is a series
of protobuf messages, each behind its length as a varint: one `GlobalMetadata`, then a `Node` for each node.
`schema/graph/README.md` in the clone lists all fields and attributes.

## What a file contains

The first three kinds of nodes are *host nodes*:

- A **slice** is a piece of an op's time on its thread. A new one begins where the op calls another or launches work.
- A **wait** is a call that returns only after work of the device has ended.
- **Idle** (`host idle`) is time of a thread between its ops for which nothing is recorded, mostly Python.
- An **activity** is a kernel, copy or memory set on the device.
- A **delay** is time before an activity that no dependency explains.
- A **metadata** node names a process group, and takes no time.

An activity whose launch call is not recorded follows a host node `unrecorded host`.

## Why a dependency is there

`data_deps` of a node has the ids of the nodes that must end before it starts. For each of them `data_dep_kinds` says
why, as a sum of bits:

{kinds}

## When does a node start?

A node starts when its last dependency allows it: at the end of each dependency plus a gap. The gap is

- `latency_ns`, if the dependency is a launch;
- `gap_ns`, if it is a host sync and the node is a wait;
- `chain_gap_ns` otherwise.

An absent `latency_ns` or `chain_gap_ns` equals `gap_ns`, and an absent `gap_ns` is 0. Then `host_delay_ns` passes, if
there is one. The node ends `duration_ns` after its start.

The first node of a thread or stream, if it has no dependencies, starts when it did in the recorded run. Others without
dependencies start with the first node of the rank.

A simulator that knows only `gap_ns` adds it to the end of the last dependency, and gets the recorded run.

## What happens between ranks?

A job is one graph for each rank. `trace-replay` plays them together:

1. **Members find each other** by group (`pg_ranks`, or the metadata `ranks_of_group_` of `pg_name`), `comm_type` and
   `comm_seq`, or else by order. A send and its receive find each other by `comm_src`, `comm_dst` and `comm_tag`, in
   order. An absent `comm_src` or `comm_dst` is the own rank.
2. **A collective starts** when its last member can, and **lasts** as long as its shortest member, because the others
   include waiting. With gloo, each member ends as long after the last arrival as it did in the recorded run.
3. **A send and its receive** start with the later one and end together.
4. **Absent members are not waited for.** Communication with them keeps its measured time.

The clocks of two ranks are aligned by the ends of the collectives or messages that they share.

## The JSON form

The object has `metadata` and `nodes`, with a node on each line. `trace-jsonize` makes the same `.et` file of it again.
This kernel, shortened, starts 1,330 ns after its launch (node 15) or 1,159 ns after the kernel before it (node 36),
whichever is later:

```text
{"id": 43, "name": "ampere_sgemm_128x128_tn", "type": "COMP_NODE", "ctrl_deps": [15], "data_deps": [15, 36],
 "start_time_micros": 2592000000191, "duration_micros": 147,
 "attr": [{"name": "is_cpu_op", "bool_val": false}, {"name": "duration_ns", "int64_val": 145981},
          {"name": "gap_ns", "int64_val": 1159}, {"name": "latency_ns", "int64_val": 1330},
          {"name": "data_dep_kinds", "int32_list": {"values": [2, 4]}}]}
```

Numbers have up to 64 bits, more than a double can store.
"""

GRAPH_FIELDS = """
[The execution graph](../../docs/graph.md) says what nodes are, why they depend on each other, and when they start.
`execution_graph.proto` in this folder has the messages.
"""

EXACT_TYPES = "A value is an `int64_val` unless another type is named, and readers must ask for exactly that type."

LINKED_TRACE = """
`trace-link` writes this file, and `trace-convert` reads it. Most people do not need it: `trace-build` makes
[graphs](../../docs/graph.md) at once. The file is one JSON object, compressed if its name ends in `.gz`. Members without an
explanation say what they are.

- An *id* is that of a node. A *position* is that of a row in a list, from 0.
- Times of activities are on the device's clock, all others on the host's.
- `[integer]` is a list, `{text: integer}` an object with any keys, *tensors* an object of parallel lists.
- `?` means that a member may be null. *Required* members must be there. Another one that is missing is null or empty,
  or has the value behind `=`.

A file with `nodes` alone, as Chakra's linker writes it, is read, too.
"""

NODE_ATTRIBUTES = """\
They are objects with `name`, `type` and `value`. Each node has these, as in [the graph](../../docs/graph.md#attributes), but
`tid` is the host trace's number. What else the host trace has for an op comes after them.
"""


PEAKS_ABOUT = """\
In TFLOP/s without sparsity (-: none or unknown), and GB/s for memory, by recorded name without the maker. `fp16` stands for bf16, too.
"""

PEAKS_OTHER = """\
`schema/device_peaks.py` also has fp64 and int8, and these devices: {}. A MIG slice has its
share of the operations, if the trace has its number of multiprocessors; its memory is not known.
"""

KERNEL_WORK = """
execgraph counts the floating-point operations of each kernel (`num_ops` in graphs), and the bytes that each kernel,
copy and set reads and writes (`tensor_size`). With the device's [peaks](#peaks), they show what limits the kernel:

```console
$ trace-report tests/data/training --only efficiency
…
  rank  device  op         …  speed [TFLOP/s]  speed [%]  …  bound    …
     0       0  aten::mm   …            119.6       76.7  …  compute  …
…
```

- `trace-replay --scale bound:compute=0.5` asks what twice the operations per second would save, `bound:memory=0.5` what
  twice the bandwidth would save.
- `--peak fp16=420 --peak memory=2000` gives other peaks, for a device that is not in the table or runs slower.
- `trace-build --roofline A100:tf32` makes graphs for [ASTRA-sim's roofline mode](astra-sim-details.md#roofline-mode).

## How is the work counted?

Both numbers come from the op that launched the kernel, or the nearest known op around it: from its name, and the
recorded shapes and types of its arguments.

- **Operations** are counted as torch.utils.flop_counter does, if it knows the op: a multiplication and its addition are
  2. Of causal attention, however, only the pairs up to the diagonal count.
- **Bytes** are those of the tensors that the op reads and writes, each once. Work in place counts its tensor twice.
- **Copies** have recorded bytes, which count twice within a device.
- **Several kernels of an op** share its work in proportion to their measured time.
- **Each other op** has a rule in `converter/work/`; an element-wise sum, for example, is one operation for each element.
- **Unknown work is absent:** execgraph does not know the op, its shapes are not recorded, or its work depends on values.
  Of a Triton kernel only the bytes are known: those of the tensors among its arguments.
"""


def graph() -> str:
    """docs/graph.md."""
    kinds = items((f"**{k.value} {k.label}**", why) for k, why in KINDS.items())
    return f"# The execution graph\n{GRAPH.replace('{kinds}', kinds)}"


def graph_fields() -> str:
    """schema/graph/README.md."""
    of_nodes = {
        where: items(
            (typed(name, kind), MEANINGS[name].text) for name, kind, _ in ATTRIBUTES if MEANINGS[name].where is where
        )
        for where in Where
    }
    metadata = [(typed(m.name + "N" * m.name.endswith("_"), m.value), m.meaning) for m in METADATA]
    sections = {
        "Fields of a node": items((f"{code(name)} {kind}", FIELDS[name]) for name, kind in node_fields()),
        "Types": items((f"{kind.value} {code(f'{kind.name}_NODE')}", is_) for kind, is_ in TYPES.items() if is_),
        "Attributes": f"{EXACT_TYPES} Attributes without an explanation say what they are.\n\n"
        + "\n\n".join(f"**{where.value}**\n\n{attributes}" for where, attributes in of_nodes.items()),
        "Delays": items((f"**{cause.value} {cause.label}**", why) for cause, why in DELAY_CAUSES.items()),
        "Collectives": ", ".join(f"{kind.value} {code(kind.name)}" for kind in CollectiveType) + ".",
        "Metadata": f"The first message of a file has `version`, {FORMAT_VERSION}, and these attributes, where known. "
        "`capture` adds further measurements. `unprofiled` is 1 in a graph of the unprofiled run, and `changed_by` lists what "
        "`--scale` changed.\n\n" + items(metadata),
    }
    return page("The execution graph: what does each field mean?", GRAPH_FIELDS, sections)


def typed(name: str, kind: str) -> str:
    """The name of an attribute, with its type unless that is the usual one."""
    return code(name) if kind == "int64_val" else f"{code(name)} {kind}"


def items(rows: Iterable[tuple[str, str]]) -> str:
    """A list of what is explained and its meaning; neighbours of one meaning share an item."""
    by_meaning = ((meaning, [what for what, _ in of_it]) for meaning, of_it in groupby(rows, key=lambda row: row[1]))
    lists = [(("; " if any(", " in what for what in names) else ", ").join(names), why) for why, names in by_meaning]
    return "\n".join(f"- {names}{': ' * bool(why)}{why}" for names, why in lists)


def linked_trace() -> str:
    """schema/linked/README.md."""
    attributes = [*((name, *typed) for name, typed in INTEGER_ATTRIBUTES.items()), ("op_schema", "string", '""')]
    sections = {record.title: f"{record.about}\n\n{members_of(record)}" for record in RECORDS} | {
        "Attributes of nodes": NODE_ATTRIBUTES
        + "\n"
        + ", ".join(f"{code(name)} {kind}={default}" for name, kind, default in attributes)
        + ".",
        "How it is known": items((code(evidence), why) for evidence, why in KNOWN_BY.items()),
    }
    return page("The linked trace: what does each member mean?", LINKED_TRACE, sections)


def kernel_work() -> str:
    """docs/kernel-work.md."""
    assert all(peak_of(name) is device.peak for name, device in zip(DEVICES, PEAKS, strict=True))
    peaks = [
        [f"{rate:g}" if rate else "-" for rate in (getattr(device.peak, of) for of in COLUMNS)] for device in PEAKS
    ]
    rows = zip(("", *DEVICES), (COLUMNS, *peaks), strict=True)
    lines = [f"{name:14}" + "".join(f"{rate:>8}" for rate in rates) for name, rates in rows if name not in SELDOM]
    others = fill(PEAKS_OTHER.replace("{}", ", ".join(code(name) for name in DEVICES if name in SELDOM)), 120)
    sections = {
        "Peaks": "\n".join([PEAKS_ABOUT, "```text", *lines, "```", "", others]),
    }
    return page("The work of kernels: how is it counted?", KERNEL_WORK, sections)


def summary_lines() -> str:
    """tools/commands/README.md, whose end, the list of what is counted, is made anew."""
    text = (DOCS / "../tools/commands/README.md").read_text(encoding="utf-8")
    lists = (f"### Under `{title}`\n\n{items(counted(meanings))}\n" for title, meanings in COUNTED.items())
    return text[: text.index("### Under `")] + "\n".join(lists)


def counted(meanings: Meanings) -> Iterable[tuple[str, str]]:
    """Names of what is counted and what they mean, without those that say it themselves."""
    for reasons, meaning in meanings.items():
        if meaning:
            names = with_common_end([REASONS[reason].replace("{}", "…") for reason in reasons])
            yield ", ".join(map(code, names)), meaning


def with_common_end(names: list[str]) -> list[str]:
    """Three names or more that end in the same words as `… outside the linked part`, others as they are."""
    backwards = zip(*(name.split()[::-1] for name in names), strict=False)
    shared = [words[0] for words in takewhile(lambda words: len(set(words)) == 1, backwards)]
    return [" ".join(["…", *reversed(shared)])] if len(names) > 2 and len(shared) > 2 else names


def page(title: str, about: str, sections: dict[str, str]) -> str:
    return f"# {title}\n{about}\n" + "\n".join(f"## {head}\n\n{text}\n" for head, text in sections.items())


def node_fields() -> list[tuple[str, str]]:
    """Name and type of each field of a node, as the .proto has them."""
    message = re.search(r"^message Node \{(.*?)^\}", PROTO.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert message
    return [(name, kind) for kind, name in re.findall(r"((?:repeated )?\w+) (\w+) = \d+;", message[1])]


def members_of(record: Record) -> str:
    """The members of a record in a list, those of one kind of node alone in a list of their own."""
    names = dict(zip(record.read.__struct_fields__, record.read.__struct_encode_fields__, strict=True))
    kinds = {names[field]: in_type_words(kind) for field, kind in get_type_hints(record.read).items()}
    defaults = default_values(record.read)

    def row(member: Member) -> tuple[str, str]:
        unit = "" if member.name.endswith(("_ns", "_pct", "_elements")) or not member.unit else f" ({member.unit})"
        kind = f"{member.written or kinds[member.name]}{defaults.get(member.name, '')}"
        return f"{code(member.name)} {kind}{unit}", member.meaning

    members = {of: items(row(member) for member in record.members if member.of == of) for of in ("", OPS, ACTIVITIES)}
    return "\n\n".join(f"Of {of} alone:\n\n" * bool(of) + rows for of, rows in members.items() if rows)


def default_values(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What a reader takes for members that are missing, where that is not null or empty."""
    defaults = {}
    for field in msgspec.structs.fields(struct):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if default is msgspec.NODEFAULT:
            defaults[field.encode_name] = ", required"
        elif isinstance(default, int | float):
            defaults[field.encode_name] = f"={default:g}"
    return defaults


def in_type_words(kind: Any) -> str:
    """A type as the documents name it: integer, [text], {text: integer}, and links to records."""
    arguments = [in_type_words(argument) for argument in get_args(kind) if argument is not msgspec.UnsetType]
    if get_origin(kind) in (types.UnionType, Union):
        kinds = dict.fromkeys(a for a in arguments if a != "null" and not (a == "integer" and "number" in arguments))
        return " or ".join(kinds) + "?" * ("null" in arguments)
    if get_origin(kind) in (list, Sequence):
        return f"[{arguments[0]}]"
    if get_origin(kind) is dict:
        return f"{{{arguments[0]}: {arguments[1]}}}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "text"
    # waits of activities and of calls are two types with the same members
    members = getattr(kind, "__struct_encode_fields__", None)
    title = next((record.title for record in RECORDS if record.read.__struct_encode_fields__ == members), "")
    return f"[{title}](#{title.lower().replace(' ', '-')})" if title else WORDS.get(kind, "object")


def code(text: object) -> str:
    return f"`{text}`"


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; `head` are the names of its columns."""
    columns = head.split()
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (columns, ["---"] * len(columns), *rows))


PAGES = {
    "graph.md": graph,
    "../schema/graph/README.md": graph_fields,
    "../schema/linked/README.md": linked_trace,
    "kernel-work.md": kernel_work,
    "../tools/commands/README.md": summary_lines,
}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (DOCS / name).write_text(made(), encoding="utf-8")
