"""Writes docs/graph.md, docs/linked-trace.md and docs/kernel-work.md from tables in the code: python docs/formats.py"""

import re
import types
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from execgraph.converter.kernel_work import RULES, TRITON
from execgraph.schema.device_peaks import PEAKS, Peak
from execgraph.schema.graph import execution_graph_pb2
from execgraph.schema.graph.attributes import ATTRIBUTES, DELAY_CAUSES, FIELDS, KINDS, METADATA, TYPES
from execgraph.schema.graph.encoder import FORMAT_VERSION
from execgraph.schema.graph.nodes import CollectiveType
from execgraph.schema.linked.layout import INTEGER_ATTRIBUTES
from execgraph.schema.linked.words import KNOWN_BY, RECORDS, Member, Record

DOCS = Path(__file__).parent
MADE = "Made by `make docs` from tables in the code; a test compares."
PROTO = Path(execution_graph_pb2.__file__).with_name("execution_graph.proto")
WORDS = {int: "integer", float: "number", str: "text", Any: "any", type(None): "null", msgspec.Raw: "tensors"}


GRAPH = """
A `.et` file holds messages of `schema/graph/execution_graph.proto`, each behind its length as a varint: one
`GlobalMetadata`, then a `Node` for each node. gzip is recognised by content when a file is read and by the ending
`.gz` when one is written. `trace-jsonize` shows a file as JSON and makes it of JSON again.

A node is a **slice** of a host op, a **wait** of the host for the device, **idle** or unrecorded host time (all these
are host nodes), an **activity** of the device, or a **delay** between what released an activity and the activity.
Dependencies are finish-to-start. Messages are sends and receives.

Why an edge exists is in the attribute `data_dep_kinds`, a [bit mask](#why-a-dependency-is-there) parallel to
`data_deps`. Each rule is a module of `converter/dependencies/`. What each is for shows where it is
[left out](accuracy.md#what-each-rule-is-for).

![Part of an execution graph: two host threads, two streams, and the edges between them](graph.svg)

An activity starts a launch latency after its launch and a gap after the activities that it follows, whichever is
later: `latency_ns` and `chain_gap_ns`, where they differ from `gap_ns`, which is what lay between the last of both
and its start in the run. What exceeds the usual is a node with the attribute `delay`, on no stream and no thread,
between what released the activity and it; `--no-delays` leaves these out, `--scale class:delay=0` does in a replay.
Start times are as recorded, activities' on the device's clock: the metadata `clock_offset_ns` says by how much that
is behind the host's.

A wait lasts as long as calls of its name take in this trace when they have nothing to wait for. What its return took
beyond that is latency, not host work: its `gap_ns`, which passes after the end of what it awaited. If the device's
clock lets the return seem shorter than such a call, the rest is `chain_gap_ns`, which passes after the host node
before. A replay as measured ends when the run did, and a call that no longer has to wait still takes its usual time.
Readers that know only `gap_ns` see the return as recorded. A trace without such calls has neither: its waits last
from the awaited end to the call's.

Sizes of collectives are the bytes that the rank puts in. Both ends of a message give it the same tag. Of a kernel
that carries several messages (`batch_isend_irecv`) `comm_src`, `comm_dst`, `comm_tag` and `comm_size` describe the
last, the lists `coalesced_src`, … describe all; for a simulator each gets a node.
"""

LINKED_TRACE = """
What `trace-link` writes and `trace-convert` reads: one JSON object, compressed for names that end in `.gz`. Ids are
those of nodes; positions count the rows of a list from 0. Times are on the device trace's clock, activities' as the
device recorded them. `[integer]` is a list, `{text: integer}` an object with any keys, *tensors* an object of
parallel lists. *Default* is what a reader takes for a member that is not there; without one it must be there.

A file with `nodes` alone, as Chakra's linker writes it, is read, too: activities are launched at the end of their op,
or at their start if that is earlier.
"""

NODE_ATTRIBUTES = """\
A list of objects with `name`, `type` and `value`. Every node has these; for their meaning see [the graph](graph.md),
but for `tid`, which is the host trace's own number of the thread. What else the host trace has for an op, as the
arguments of a collective, follows.
"""


KERNEL_WORK = """
Of every kernel, copy and set a graph says how many floating-point operations it does (`num_ops`) and how many bytes
it reads and writes (`tensor_size`): what the op that launched it does, by the op's name and the recorded shapes and
types of its arguments. What simulators with a roofline ask for is both.

**Operations** are those of torch.utils.flop_counter, 2 for a product and its sum, where that knows the op. Elsewhere
each elementary step of each element is one, whatever its type. **Bytes** are those of the tensors that the op reads
and of those that it writes, each once, a tensor that is changed in place once each way; dimensions that are expanded
are in memory once; numbers on the host are no memory of the device. Activities that are copies and sets do no
operations and move the bytes that the device trace has for them, within one device twice. Communication has neither;
it has `comm_size`.

**Whose work a kernel does.** That of the op that launched it, if the table has that; else of the nearest op around it
that the table has, unless ops inside that one do its work. An op around others of its own family has handed its work
on to them. The kernels of one call of an op share operations and bytes in proportion to their measured time: the sums
are the op's, and each kernel has its operations per byte.

**What is not known is absent**: an op that the table lacks, or whose shapes were not recorded, or whose work depends
on values (sequences of several lengths, attention within a window). `trace-convert` counts it by op. Where the host
trace is missing, results follow from the arguments as far as possible. For ASTRA-sim every computation whose work is
known has at least one operation and one byte, as its roofline mode divides by them, and the first of all 64 KiB, as
it stops at an event of 0 ns. `trace-build --roofline` makes graphs in which what is not known takes its measured time
there: [roofline mode](astra-sim.md#roofline-mode).

**What limits a kernel** follows from the device's peaks, below, found by the device's recorded name and the kernel's
number format (`element_size`, and for tf32 the kernel's name): operations, if these take longer at their peak than
the bytes at theirs, else memory. `trace-report --only efficiency` says what each op and shape reaches, what limits
it, and how much of the peak each step uses (operations as they ran, those of recomputed activations too);
`trace-replay --scale bound:compute=0.5` asks what twice the operations per second would bring, `bound:memory=0.5`
what twice the bandwidth. `--peak fp16=420 --peak memory=2000` says other peaks, for a device that the table lacks or
that runs below its clock.
"""


def graph() -> str:
    """docs/graph.md."""
    attributes = [(code(a.name), code(a.value), a.where.value, a.unit, a.meaning) for a in ATTRIBUTES]
    metadata = [(code(m.name + "N" * m.name.endswith("_")), code(m.value), m.unit, m.meaning) for m in METADATA]
    sections = {
        "Fields of a node": table(
            "field type meaning", ((code(name), kind, FIELDS[name]) for name, kind in node_fields())
        ),
        "Types": table("number type is", ((kind.value, code(f"{kind.name}_NODE"), is_) for kind, is_ in TYPES.items())),
        "Attributes": "A node has an attribute only where there is something to say. Simulators ask for exactly this "
        "type.\n\n" + table("attribute type on unit meaning", attributes),
        "Why a dependency is there": table("bit kind meaning", ((k.value, k.label, why) for k, why in KINDS.items())),
        "Delays": table(
            "number cause meaning", ((cause.value, cause.label, why) for cause, why in DELAY_CAUSES.items())
        ),
        "Collectives": table("number collective", ((kind.value, code(kind.name)) for kind in CollectiveType)),
        "Metadata": f"Beside `version`, {FORMAT_VERSION}.\n\n" + table("key type unit meaning", metadata),
    }
    return page("The execution graph file", GRAPH, sections)


def linked_trace() -> str:
    """docs/linked-trace.md."""
    attributes = [(code(a.name), a.type, a.missing) for a in INTEGER_ATTRIBUTES] + [(code("op_schema"), "string", "")]
    sections = {record.title: f"{record.about}\n\n{members_of(record)}" for record in RECORDS} | {
        "Attributes of nodes": NODE_ATTRIBUTES + "\n" + table("attribute type default", attributes),
        "How it is known": table("known_by meaning", ((code(evidence), why) for evidence, why in KNOWN_BY.items())),
    }
    return page("The linked trace file", LINKED_TRACE, sections)


def kernel_work() -> str:
    """docs/kernel-work.md."""
    families = dict.fromkeys(rule.family for rule in RULES.values()) | {TRITON: None}
    steps: dict[tuple[str, int], list[str]] = {}
    for name, rule in RULES.items():
        steps.setdefault((rule.family.name, rule.steps), []).append(code(name))
    sections = {
        "Families": table(
            "family operations bytes source", ((f.name, f.operations, f.bytes, f.source) for f in families)
        ),
        "Ops": "*Steps* are operations of each element, of families that count so.\n\n"
        + table(
            "family steps ops", ((family, count or "", " ".join(names)) for (family, count), names in steps.items())
        ),
        "Peaks": "TFLOP/s, dense, 0 where a device has no such format, and GB/s. The first name found in the recorded "
        "one counts.\n\n"
        + table(f"name {' '.join(Peak._fields)}", ((code(device.pattern), *device.peak) for device in PEAKS)),
    }
    return page("The work of kernels", KERNEL_WORK, sections)


def page(title: str, about: str, sections: dict[str, str]) -> str:
    return f"# {title}\n\n{MADE}\n{about}\n" + "\n".join(f"## {head}\n\n{text}\n" for head, text in sections.items())


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
        if default is not msgspec.NODEFAULT:
            defaults[field.encode_name] = code(msgspec.json.encode(default).decode())
    return defaults


def in_type_words(kind: Any) -> str:
    """A type as the documents name it: integer, [text], {text: integer}, and links to records."""
    arguments = [in_type_words(argument) for argument in get_args(kind)]
    if get_origin(kind) in (types.UnionType, Union):
        return " or ".join(dict.fromkeys(a for a in arguments if not (a == "integer" and "number" in arguments)))
    if get_origin(kind) is list:
        return f"[{arguments[0]}]"
    if get_origin(kind) is dict:
        return f"{{{arguments[0]}: {arguments[1]}}}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "text"
    title = next((record.title for record in RECORDS if record.read is kind), "")
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
