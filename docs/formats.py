"""Writes docs/graph.md, docs/linked-trace.md and docs/kernel-work.md: python docs/formats.py

The tables are those of the code; their words are in graph_words.py, kernel_words.py and linked_words.py.
"""

import re
import sys
import types
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from execgraph.converter.work import RULES
from execgraph.schema.device_peaks import PEAKS, Peak
from execgraph.schema.graph import execution_graph_pb2
from execgraph.schema.graph.codec import FORMAT_VERSION
from execgraph.schema.graph.nodes import ATTRIBUTES, CollectiveType
from execgraph.schema.linked.layout import INTEGER_ATTRIBUTES
from execgraph.schema.reasons import Counts, to_json

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from graph_words import DELAY_CAUSES, FIELDS, KINDS, MEANINGS, METADATA, TYPES  # noqa: E402
from kernel_words import FAMILIES  # noqa: E402
from linked_words import KNOWN_BY, RECORDS, Member, Record  # noqa: E402

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
What is in a graph file (`graph.0.et`), and what does each field mean? This page lists every field, attribute and
metadata key with its type and unit. To look into a file, turn it into JSON with `trace-jsonize`, or load it in Python
with `execgraph.read_graph`. The tables below are generated from the code.

## What a file holds

A `.et` file holds protobuf messages of `schema/graph/execution_graph.proto` in the clone: one `GlobalMetadata`, then
one `Node` for each node. Each message begins with its length as a varint. Readers recognise gzip by the content;
writers compress if the name ends in `.gz`. `trace-jsonize` writes a file as JSON, and the same file again from that
JSON.

There are five kinds of nodes that take time. The first three are *host nodes*, work or waiting of a CPU thread:

- A **slice** is a piece of an op's time on its thread. Where an op calls another one or launches a kernel, a new slice
  begins.
- A **wait** is a call that does not return before work of the device has ended.
- **Idle** is the time of a thread between its ops: Python, or nothing that the profiler recorded.
- An **activity** is a kernel, a copy or a set (`memset`) on the device.
- A **delay** is time before an activity for which the trace shows no reason.

This is how a reader tells them apart:

| kind | is recognised by |
|---|---|
| delay | it has the attribute `delay` |
| activity | `is_cpu_op` is false, and it is no delay |
| wait | `is_cpu_op` is true, and one of its dependencies has bit 16 |
| idle | `is_cpu_op` is true, and its name is `host idle` |
| slice | any other node with `is_cpu_op` true, except process groups. Only slices of ops have `slice` |

Process groups are nodes, too, of type `METADATA_NODE`, and take no time. Graphs for ASTRA-sim have a few more, which
[that page](astra-sim.md#how-do-these-graphs-differ-from-others) explains.

An edge means that a node starts only after another has ended. The list `data_deps` of a node holds the ids of the nodes
that it waits for, and the list `data_dep_kinds` says of each of them [why](#why-a-dependency-is-there). You can see
what each kind of edge is for by [leaving it out](accuracy.md#what-each-rule-is-for). A *message* is a send or a receive
between two ranks.

![Part of an execution graph: two host threads, two streams, and the edges between them](graph.svg)

## When does a node start?

A node with dependencies starts when the last of them allows it. Each dependency allows the start a certain time after
its own end. Its [kind](#why-a-dependency-is-there), the entry of `data_dep_kinds` at the same position, says which
attribute has that time:

| the entry | the node starts no earlier than |
|---|---|
| has bit 2 (launch) | the end of the dependency + `latency_ns` |
| has bit 16 (host sync), and the node is a wait | the end of the dependency + `gap_ns` |
| has neither | the end of the dependency + `chain_gap_ns` |

An absent `latency_ns` or `chain_gap_ns` equals `gap_ns`, and an absent `gap_ns` is 0. If the node has `host_delay_ns`,
that passes after all of this. The node ends `duration_ns` after its start. The other bits say why a dependency is
there, and do not change when the node starts.

A node **without dependencies** starts when it did in the measured run, if it is the first of its thread or stream.
Otherwise it starts at 0, when the first node of its rank does, so that a missing dependency shows. A dependency of bit
2 or 4 may go through a delay: then the delay depends on the launch or on the kernel before, and the activity on the
delay. Both entries have that bit.

The metadata `concurrency_limit_of_device_N` is no part of these rules, and a simulator need not obey it. `trace-replay`
obeys it only if durations are changed: then no more activities of the device run at once.

### Activities

A launched kernel does not start at once, and a stream pauses a little between two kernels. So an activity starts at

```text
the later of   end of its launch                + latency_ns
               end of each other dependency     + chain_gap_ns
```

This is what `trace-replay` computes; after a change of durations it obeys `concurrency_limit_of_device_N` as well.
`gap_ns` is what lay in the measured run between the end of the last dependency and the start. An attribute that is
absent equals `gap_ns`. A reader that knows only `gap_ns` adds it to the end of the last dependency, and gets the
measured run.

If an activity started later than this formula says, the rest of the time is a node with the attribute `delay`, on no
stream and on no thread. `trace-convert --no-delays` leaves these nodes out, and `trace-replay --scale class:delay=0`
lets them take no time.

Start times are as recorded, except those of [waits](#waits). Those of activities are on the device's clock. The
metadata `clock_offset_ns` says how much to add for the host's clock.

### Waits

A call such as `cudaStreamSynchronize` takes some time even if the device is idle already. That is the `duration_ns` of
a wait: the median of the calls of its name in this trace that had nothing to wait for. The call returns a little after
the awaited work has ended; what this took beyond `duration_ns` is the `gap_ns` of the wait. So

```text
end of the wait = the later of   end of what it waits for          + gap_ns
                                 end of the host node before it    + chain_gap_ns
                  + duration_ns
```

`chain_gap_ns` is 0 unless the two clocks disagree a little. So an unchanged replay ends when the run did, and a call
that no longer has to wait still takes its usual time. In a trace without calls that had nothing to wait for, waits have
neither attribute, and last from the end of what was awaited to the end of the call.

## What happens between ranks?

A job is one graph for each rank. This is how `trace-replay` plays them together:

1. **Members find each other.** Nodes of several ranks are one collective if they have the same group, the same
   `comm_type` and the same `comm_seq`. The same group means the same `pg_ranks` (or, where nodes lack it, the metadata
   `ranks_of_group_` of their `pg_name`), or the same recorded name where no ranks were recorded. If a group's numbers
   are not recorded, or if far more collectives match by their order than by number, the order of ids counts: the first
   of a rank matches the first of another. A send matches the receive of the same `comm_src`, `comm_dst` and `comm_tag`,
   in order. If a node lacks one of the two sides, its own rank takes that place.
2. **It starts when the last member arrives.** A member arrives when its own dependencies allow it to start, by the
   rules above.
3. **It lasts as long as its shortest member:** the smallest `duration_ns` of any member. The others are longer because
   they waited. All members end together.
4. **A send and its receive** are the two members of a match: the later one starts both, and both end together. A kernel
   with several messages ends with the last of them.
5. **Absent members are not waited for.** A collective of which only one rank is there, and a message without its other
   end, take the measured time of the node.

On host threads (gloo), members do not end together. Each ends as long after the last arrival as it did in the measured
run; if its `duration_ns` is changed, that time changes by the same factor. A member of a message, or of a collective
with a root, may end before others arrive. For such a member only arrivals before its own end count.

**One clock.** `base_time_ns` is not used for this, because clocks of different machines differ. A collective ends at
the same time on all of its members. So the offset between two ranks is the median of the differences between their ends
of the collectives that they share, each counted from the first node of its own rank. It is limited so that no member
ends a collective that another one has not begun. Messages decide only where two ranks share no collective. Ranks that
share nothing begin together. A rank's nodes without dependencies start that offset later. (In graphs for ASTRA-sim a
node `start offset` has this time. `trace-replay` leaves it out and computes the offset anew.)

## What does communication carry?

The size of a collective is the number of bytes that the rank puts in. Both ends of a message give it the same tag. A
kernel may carry several messages (`batch_isend_irecv`). Then `comm_src`, `comm_dst`, `comm_tag` and `comm_size`
describe the last one, and the lists `coalesced_src`, `coalesced_dst` and so on describe all. For a simulator each
message gets a node.

## The JSON form

`trace-jsonize graph.0.et -o graph.0.json` writes an object with two members: `metadata`, with `version` and `attr`, and
`nodes`, a list with a node on each line. `trace-replay` and `execgraph.read_graph` read it as well as the `.et` file.
This is a kernel, broken into several lines. It starts 1,159 ns after node 36, the kernel before it on stream 7, or
1,330 ns after node 15, its launch, whichever is later:

```text
{"id": 43, "name": "ampere_sgemm_128x128_tn", "type": "COMP_NODE", "ctrl_deps": [15], "data_deps": [15, 36],
 "start_time_micros": 2592000000191, "duration_micros": 147,
 "attr": [{"name": "is_cpu_op", "bool_val": false}, {"name": "start_time_ns", "int64_val": 2592000000191119},
          {"name": "duration_ns", "int64_val": 145981}, {"name": "gap_ns", "int64_val": 1159},
          {"name": "latency_ns", "int64_val": 1330}, {"name": "overlap_ns", "int64_val": 0},
          {"name": "op_id", "int64_val": 32}, {"name": "device", "int64_val": 0}, {"name": "stream", "int64_val": 7},
          {"name": "correlation", "int64_val": 10}, {"name": "cat", "string_val": "kernel"},
          {"name": "num_ops", "int64_val": 17179869184}, {"name": "tensor_size", "uint64_val": 50339840},
          {"name": "element_size", "int32_val": 4}, {"name": "data_dep_kinds", "int32_list": {"values": [2, 4]}}]}
```

- Keys are the [fields of a node](#fields-of-a-node). A field that the file does not have is absent, except lists of
  dependencies, which are then empty.
- `type` is the name of the [type](#types).
- An attribute has `name` and one value, whose key is the type in the [table of attributes](#attributes). The values of
  `int32_list` and `int64_list` are in an object with the key `values`.
- All numbers are JSON numbers, also those of 64 bits. A parser that turns them into doubles loses digits of
  `base_time_ns`.
"""

LINKED_TRACE = """
What is in the file that `trace-link` writes and `trace-convert` reads? This page lists every table and member. Most
people do not need it: `trace-convert` turns the file into a [graph](graph.md). The tables below are generated from
the code.

The file is one JSON object, compressed if its name ends in `.gz`.

- *Ids* are ids of nodes. *Positions* count the rows of a list from 0.
- Times are as in the device trace: those of ops and calls are on the host's clock, those of activities on the device's.
- `[integer]` is a list, `{text: integer}` an object with any keys, *tensors* an object of parallel lists.
- *Default* is what a reader assumes if a member is missing. A member without a default must be there.

A file with `nodes` alone, as Chakra's linker writes it, is read, too. Then activities are taken to be launched at the
end of their op, or at their start if that is earlier.
"""

NODE_ATTRIBUTES = """\
A list of objects with `name`, `type` and `value`. Every node has these; for their meaning see [the graph](graph.md). The
exception is `tid`, the host trace's own number of the thread. Whatever else the host trace has for an op, such as the
arguments of a collective, comes after these.
"""


KERNEL_WORK = """
How much work does a kernel do, and what limits it? For every kernel, copy and set a graph says how many floating-point
operations it does (`num_ops`) and how many bytes it reads and writes (`tensor_size`). Both are computed for the op that
launched it, from the op's name and the recorded shapes and types of its arguments. Simulators with a roofline model ask
for these two numbers. The tables below are generated from the code.

## How is the work counted?

**Operations** are counted as torch.utils.flop_counter counts them, if it knows the op: a multiplication and its
addition are 2. The rows *convolution* and *attention* [below](#families) name two exceptions. For other ops each
elementary step of each element is one operation, whatever its type.

**Bytes** are those of the tensors that the op reads and of those that it writes, each once. A tensor that is changed in
place counts once each way. Expanded dimensions are in memory once. Numbers on the host are no memory of the device.
Copies and sets do no operations. Their bytes are those that the device trace records; a copy within one device counts
them twice. Communication has neither number; it has `comm_size`.

**Which op counts?** The op that launched the kernel, if the tables below have it. Otherwise the nearest op around it
that they have, unless ops inside that one do its work. If an op calls others of its own family, the work counts for
those. If one call of an op launches several kernels, they share operations and bytes in proportion to their measured
time: the sums are those of the op, and every kernel has the op's number of operations per byte.

**What is not known is absent.** That is an op that the tables lack, an op whose shapes were not recorded, or one whose
work depends on values (sequences of several lengths, attention within a window). `trace-convert` counts these by op. If
the host trace is missing, results are inferred from the arguments as far as possible.

For ASTRA-sim every computation of known work has at least one operation and one byte, because its roofline mode divides
by them. A computation that begins a rank reads and writes at least 64 KiB, because the simulator stops if it takes 0
ns. `trace-build --roofline` makes graphs in which work that is not known takes its measured time there: [roofline
mode](astra-sim.md#roofline-mode).

## What limits a kernel?

A kernel has operations to do and bytes to move. If its operations take longer at the device's [peak](#peaks) than its
bytes do at theirs, operations limit it; otherwise memory does. The peaks are found by the device's recorded name and
the kernel's number format (`element_size`, and for tf32 the kernel's name).

- `trace-report --only efficiency` shows what each op and shape reaches, what limits it, and how much of the peak each
  step uses (operations as they ran, including those that the backward pass computed again).
- `trace-replay --scale bound:compute=0.5` asks how much twice the operations per second would help, `bound:memory=0.5`
  how much twice the bandwidth would.
- `--peak fp16=420 --peak memory=2000` gives other peaks, for a device that the table lacks or that runs below its
  clock.
"""


def graph() -> str:
    """docs/graph.md."""
    attributes = [
        (code(a.name), code(a.value), MEANINGS[a.name].where.value, a.unit, MEANINGS[a.name].text) for a in ATTRIBUTES
    ]
    metadata = [(code(m.name + "N" * m.name.endswith("_")), code(m.value), m.unit, m.meaning) for m in METADATA]
    sections = {
        "Fields of a node": table(
            "field type meaning", ((code(name), kind, FIELDS[name]) for name, kind in node_fields())
        ),
        "Types": table("number type is", ((kind.value, code(f"{kind.name}_NODE"), is_) for kind, is_ in TYPES.items())),
        "Attributes": "A node has an attribute only if there is something to say. "
        "Readers must ask for exactly this type.\n\n" + table("attribute type on unit meaning", attributes),
        "Why a dependency is there": table("bit kind meaning", ((k.value, k.label, why) for k, why in KINDS.items())),
        "Delays": table(
            "number cause meaning", ((cause.value, cause.label, why) for cause, why in DELAY_CAUSES.items())
        ),
        "Collectives": table("number collective", ((kind.value, code(kind.name)) for kind in CollectiveType)),
        "Metadata": f"The first message of a file has `version`, {FORMAT_VERSION}, and these attributes:\n\n"
        + table("key type unit meaning", metadata),
    }
    return page("The execution graph: what does each field mean?", GRAPH, sections)


def linked_trace() -> str:
    """docs/linked-trace.md."""
    integers = [(code(name), *typed) for name, typed in INTEGER_ATTRIBUTES.items()]
    sections = {record.title: f"{record.about}\n\n{members_of(record)}" for record in RECORDS} | {
        "Attributes of nodes": NODE_ATTRIBUTES
        + "\n"
        + table("attribute type default", [*integers, (code("op_schema"), "string", "")]),
        "How it is known": table("known_by meaning", ((code(evidence), why) for evidence, why in KNOWN_BY.items())),
    }
    return page("The linked trace: what does each member mean?", LINKED_TRACE, sections)


def kernel_work() -> str:
    """docs/kernel-work.md."""
    words_of = {name: FAMILIES[name] for name in [*(rule.family for rule in RULES.values()), "Triton kernel"]}
    steps: dict[tuple[str, int], list[str]] = {}
    for name, rule in RULES.items():
        steps.setdefault((rule.family, rule.steps), []).append(code(name))
    peaks = ((device.pattern, device.multiprocessors, *device.peak) for device in PEAKS)
    sections = {
        "Families": table(
            "family operations bytes source",
            ((name, words.operations, words.bytes, words.source) for name, words in words_of.items()),
        ),
        "Ops": "*Steps* is the number of operations per element, in families that count so.\n\n"
        + table(
            "family steps ops", ((family, count or "", " ".join(names)) for (family, count), names in steps.items())
        ),
        "Peaks": "In TFLOP/s without sparsity, and GB/s for memory; 0 if a device has no such format. "
        "The recorded name without its maker is one of these. A MIG slice, or a device with other multiprocessors, has its "
        "share of the operations if the trace has their number; its memory is not known.\n\n"
        + table(f"name multiprocessors {' '.join(Peak._fields)}", ((code(pattern), *peak) for pattern, *peak in peaks)),
    }
    return page("The work of kernels: how is it counted?", KERNEL_WORK, sections)


def page(title: str, about: str, sections: dict[str, str]) -> str:
    return f"# {title}\n{about}\n" + "\n".join(f"## {head}\n\n{text}\n" for head, text in sections.items())


def node_fields() -> list[tuple[str, str]]:
    """Name and type of each field of a node, as the .proto has them."""
    message = re.search(r"^message Node \{(.*?)^\}", PROTO.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert message
    return [(name, kind) for kind, name in re.findall(r"((?:repeated )?\w+) (\w+) = \d+;", message[1])]


def members_of(record: Record) -> str:
    """The table of a record's members."""
    names = dict(zip(record.read.__struct_fields__, record.read.__struct_encode_fields__, strict=True))
    kinds = {names[field]: in_type_words(kind) for field, kind in get_type_hints(record.read).items()}
    defaults, of_kinds = default_values(record.read), any(member.of for member in record.members)

    def row(member: Member) -> list[object]:
        of = [member.of or "both"] if of_kinds else []
        kind = member.written or kinds[member.name]
        return [code(member.name), kind, *of, defaults.get(member.name, ""), member.unit, member.meaning]

    return table(f"member type {'of ' * of_kinds}default unit meaning", map(row, record.members))


def default_values(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What a reader takes for the members that may be missing, as JSON."""
    defaults = {}
    for field in msgspec.structs.fields(struct):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if default not in (msgspec.NODEFAULT, msgspec.UNSET):
            defaults[field.encode_name] = code(to_json(default).decode())
    return defaults


def in_type_words(kind: Any) -> str:
    """A type as the documents name it: integer, [text], {text: integer}, and links to records."""
    arguments = [in_type_words(argument) for argument in get_args(kind) if argument is not msgspec.UnsetType]
    if get_origin(kind) in (types.UnionType, Union):
        return " or ".join(dict.fromkeys(a for a in arguments if not (a == "integer" and "number" in arguments)))
    if get_origin(kind) is list:
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


PAGES = {"graph.md": graph, "linked-trace.md": linked_trace, "kernel-work.md": kernel_work}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (DOCS / name).write_text(made(), encoding="utf-8")
