"""The options of all commands, and of the calls from Python that take the same: one row for each.

The parsers of the commands are built from this table, and calls check their arguments by it, so that no option has one
meaning on the command line and another in Python.
"""

from collections.abc import Iterator
from typing import Any, get_args

from ..schema.arguments import ASTRA_SIM, GOAL, TARGETS, Algorithm, InputsOutputs, Promotion, Simulator
from ..schema.device_peaks import Peak
from .option_kinds import (
    CLOCK,
    COUNT,
    DURATION,
    FILE,
    FLAG,
    HOPS,
    MEGABYTES,
    NS_OF_US,
    NUMBERS,
    ONLY,
    PATH,
    PATHS,
    PEAKS,
    POSITIVE,
    RANKS,
    RANKS_OF_JOB,
    ROOFLINE,
    ROWS,
    SCALES,
    STEPS,
    TEXT,
    TEXTS,
    TIMES,
    WHOLE,
    Group,
    Option,
    analysis_names,
    ends_as,
)

FORMS = (".svg", ".dot", ".graphml")
"""The endings of files in which a graph is viewed."""
FLOW, LANES = "flow", "lanes"
"""What a picture of a graph shows."""
SCALABLE = ("host", "computation", "communication", "memory", "delay")
"""The classes of nodes whose durations can be changed."""
WINDOW_RULE = """\
If you give several, the part is what they have in common. The whole trace is linked
and then cut. A call belongs to the part in which it starts, and an activity to the part
of its launch call. An op belongs to every part that it overlaps, cut to its borders.
Waits and hand-offs across a border are left out and counted; what they delayed starts
as measured"""
OTHER_SHAPES = "kernels would have other shapes, and no trace of this job has their times"
REFUSED = {
    "--tensor-parallel": OTHER_SHAPES,
    "--context-parallel": OTHER_SHAPES,
    "--expert-parallel": "experts would get other tokens, and all-to-alls other parts",
    "--pipeline-parallel": "a stage would have other layers, and other stages to send to",
    "--pipeline-microbatches": "the schedule decides the order of more micro-batches, and no graph has it",
}
"""What would be another program, and why."""

# fmt: off
MODULES = Option("--modules", FLAG, "link build report compare", "", "give each op and activity its nn.Module and Python "
                 "function, from Python's calls; record them with with_stack=True and with_modules=True")
WINDOW = Group("a part of a long trace", (
    Option("--steps", STEPS, "Window", "A[:B]",
           "profiler step A, or steps A up to but not including B; a step lasts until the next one begins"),
    Option("--annotation", TEXT, "Window", "NAME[:K|:all]", "the first annotation of this name; with :K the one after K "
           "others; with :all from the first to the last"),
    Option("--window", CLOCK, "Window", "T0:T1", "from T0 to T1 µs after recording began, as viewers show it", "clock"),
), WINDOW_RULE)
GRAPH = (
    Option("--target", TEXT, "Options to_graph", "", "what the graph is for: generic; astra-sim, which replaces what that "
           "simulator cannot run, and counts it; goal, one file for the whole job for LogGOPSim and ATLAHS, which only "
           "trace-build writes (generic)", default=TARGETS[0], choices=TARGETS),
    Option("--promote", TEXT, "Options to_graph", "", "sync: the host runs ahead of the device, as it did; all: the host "
           "waits for everything that it launches (sync)", default="sync", choices=get_args(Promotion)),
    Option("--no-host", FLAG, "Options to_graph", "",
           "only device activities; host time that they waited for is added to them"),
    Option("--io", TEXT, "Options to_graph", "", "keep the tensors of ops, or leave them out (full)", default="full",
           choices=get_args(InputsOutputs)),
    Option("--live-bytes", FLAG, "Options to_graph", "",
           "add to each node how many bytes of tensors are in use while it runs"),
    Option("--no-inferred", FLAG, "Options to_graph", "", "leave out edges that are known from timing alone"),
)


def _json(what: str) -> Option:
    return Option("--json", FLAG, "", "", f"print {what} as one JSON object on stdout")


def _changes(calls: str, intro: str = "", end: str = "") -> tuple[Option, Option]:
    """Returns --scale, whose help has these texts around it, and --peak."""
    return (
        Option("--scale", SCALES, calls, "SPEC", f"{intro}REGEX=F multiplies the durations of nodes whose name matches; "
               f"class:CLASS=F those of a class ({', '.join(SCALABLE)}), bound:compute=F or bound:memory=F those of "
               f"kernels limited by operations or bytes; repeatable{end}", "changes"),
        Option("--peak", PEAKS, "AnalysisOptions" if intro else "", "NAME=N", "the peak of devices whose name is not "
               f"known: TFLOP/s of {', '.join(Peak._fields[:-1])}, or GB/s of {Peak._fields[-1]}; repeatable", "peaks"),
    )


COMMANDS: dict[str, tuple[Group, ...]] = {
    "trace-link": (
        Group("input", (
            Option("--host-trace --chakra-host-trace", FILE, "", "ET",
                   "the host trace, by name (PyTorch Execution Trace; the second spelling is Chakra's)"),
            Option("--device-trace --chakra-device-trace", FILE, "", "KINETO",
                   "the device trace, by name (Kineto trace or rocpd database; - is stdin)"),
            Option("--rank", WHOLE, "link", "N",
                   "the rank of a trace that records none, or the one to take from a folder or a merged trace"),
            Option("--allow-mismatch", FLAG, "link", "", "link files that do not seem to be of one run and rank"),
            Option("--strict", FLAG, "link", "", "refuse damaged files instead of using what can be read"),
            MODULES,
        )),
        WINDOW,
        Group("output", (_json("the summary"),)),
    ),
    "trace-convert": (
        Group("input", (
            Option("--comm-groups", FILE, "", "FILE", "the numbers of the job's process groups, as trace-build writes them"),
        )),
        Group("what the graph holds", (
            *GRAPH,
            Option("--no-delays", FLAG, "Options to_graph", "",
                   "leave out delays, which are device time that no dependency explains"),
            Option("--shortest-slice", NS_OF_US, "Options to_graph", "µs",
                   "make host slices that are shorter part of a neighbour (1)", default=1_000),
        )),
        Group("output", (_json("the summary"),)),
    ),
    "trace-build": (
        Group("input", (
            Option("--allow-mismatch", FLAG, "build", "",
                   "number traces without a rank by process, even if they do not seem to be of one job"),
            MODULES,
        )),
        WINDOW,
        Group("what the graphs hold", (
            *GRAPH,
            Option("--no-start-offsets", FLAG, "build", "", "let all ranks begin at once, as if they had begun to record "
                   f"together (for --target {ASTRA_SIM} and {GOAL})"),
            Option("--no-excess-time", FLAG, "build", "", "leave out the time that collectives took beyond the fitted "
                   f"network (for --target {ASTRA_SIM} and {GOAL})"),
        )),
        Group(f"for --target {ASTRA_SIM}", (
            Option("--bandwidth", POSITIVE, "AstraSimOptions", "GIB/S", "of a link, in 2**30 bytes per second (fitted)",
                   "bandwidth_gib_s"),
            Option("--latency", POSITIVE, "AstraSimOptions", "NS", "of a link (fitted)", "latency_ns"),
            Option("--replay", FLAG, "AstraSimOptions", "",
                   "let every node take its recorded time, collectives included"),
            Option("--roofline", ROOFLINE, "AstraSimOptions", "DEVICE:FORMAT", "let kernels of known work take its time at "
                   "the peaks of a device, such as V100:fp32, or at TFLOPS:GB/S"),
            Option("--incomplete-groups", TEXT, "AstraSimOptions", "", "if ranks of the job are missing: restrict groups "
                   "to the ranks that are there, or keep them whole with measured times (restrict)", default="restrict",
                   choices=("restrict", "keep")),
        ), f"OUT/{ASTRA_SIM} gets the simulator's configuration: a network fitted to the measured collectives"),
        Group("for --target goal", (
            Option("--algorithm", TEXT, "GoalOptions", "", "all-reduces and all-gathers by ring, or by recursive doubling "
                   "if they have 2^n members (ring)", choices=get_args(Algorithm)),
            Option("--chunk", WHOLE, "GoalOptions", "BYTES", "the longest message (524288)", "chunk_bytes"),
            Option("--gpus-per-node", WHOLE, "GoalOptions", "N",
                   "how many ranks share a node; messages within it take nic 1 (1)"),
            Option("--measured-communication", FLAG, "GoalOptions", "",
                   "collectives and messages wait for all members, and then take their measured time",
                   settings={"default": None}),
            Option("--simulator", TEXT, "GoalOptions", "", "which simulator runs it; it decides how cpus wait for each "
                   "other (loggopsim)", choices=get_args(Simulator)),
        ), "OUT/job.goal gets the whole job, for LogGOPSim and ATLAHS"),
        Group("where it runs", (
            Option("--jobs", COUNT, "build scale", "N",
                   "how many ranks to build at a time, each in a process (default: the number of cores)"),
            Option("--scheduler", TEXT, "build", "ADDR", "build on the Dask cluster with this scheduler, tcp://…"),
            Option("--force", FLAG, "build", "", "build ranks that are up to date, too"),
        )),
        Group("output", (Option("--strict", FLAG, "", "", "exit with 1 for notes, too"), _json("the report"))),
    ),
    "trace-replay": (
        Group("input", (
            Option("--allow-mismatch", FLAG, "replay", "",
                   "replay graphs together that do not seem to be of one job"),
        )),
        Group("what is replayed", (
            *_changes("replay what_if", end=", factors multiply"),
            Option("--simulator", TEXT, "", "", "predict when each rank finishes in this simulator, from graphs that were "
                   "made for it and the configuration next to them", choices=[ASTRA_SIM]),
        )),
        Group("output", (
            Option("-o --output --timeline", ends_as(".json"), "", "TIMELINE.json[.gz]", "write the measured and the "
                   "replayed run as a trace for Perfetto (--json prints the figures)", "output"),
            _json("the figures"),
        )),
    ),
    "trace-report": (
        Group("input", (
            Option("--diff", PATH, "", ("A", "B"), "compare two runs, files or folders", settings={"nargs": 2}),
            Option("--ranks", RANKS, "report", "A-B,C", "only these ranks, such as 0-3,8"),
            Option("--capture-trace", PATHS, "report", "TRACE", "a device trace in which CUDA graphs were captured, or ran "
                   "op by op; it names the ops behind the kernels of launched graphs; repeatable", "captures"),
            MODULES,
        )),
        WINDOW,
        Group("which analyses", (
            Option("--only", ONLY, "report", "ANALYSIS", "only these analyses: {choices}; --diff has its own",
                   choices=analysis_names, settings={"nargs": "+", "action": "extend", "default": None}),
            Option("--all", FLAG, "", "", "print the first rows of all tables on the terminal"),
        )),
        Group("what the analyses count and show", (
            Option("--kernel-wait", DURATION, "AnalysisOptions", "µs", "a shorter gap on a stream counts as the kernel's "
                   "own wait, unless the host was late (default %(default)g)", "kernel_wait_us", 30),
            Option("--slow-call", DURATION, "AnalysisOptions", "µs",
                   "a launch call that takes longer is slow (default %(default)g)", "slow_call_us", 50),
            Option("--long-delay", DURATION, "AnalysisOptions", "µs",
                   "work that starts later after its call has a long delay (default %(default)g)", "long_delay_us", 100),
            Option("--operator", TEXT, "AnalysisOptions", "TEXT",
                   "only kernel patterns of operators whose name contains this text (default: all)", default=""),
            Option("--top", ROWS, "AnalysisOptions", "N", "how many kernels of each class to name, and how many patterns "
                   "--perfetto marks (default %(default)s)", default=10),
        ), "durations in µs"),
        Group("what if", _changes("report", "what a changed run would take, by replay: ")),
        Group("output", (
            Option("--csv", PATH, "", "DIR", "write a CSV file for each table"),
            _json("all tables"),
            Option("--perfetto", ends_as(".json"), "report", "TRACE.json", "write the device trace for Perfetto, with "
                   "counters, the critical path and kernel patterns; several ranks give TRACE.rankN.json"),
        )),
    ),
    "trace-diagnose": (
        Group("", (Option("--strict", FLAG, "", "", "exit with 1 if something is wrong"), _json("everything"))),
    ),
    "trace-jsonize": (
        Group("output", (
            Option("--to", TEXT, "", "", "what to write, if the file names do not say it", choices=("et", "json")),
            _json("the summary"),
        )),
    ),
    "trace-view": (
        Group("output", ()),
        Group("a part of the graph: nodes that meet all conditions", (
            Option("--step", WHOLE, "draw", "N",
                   "the profiler's step with this number (default for data flow: the step of median length)"),
            Option("--module", TEXT, "draw", "NAME",
                   "a module, by its path or a part of it, such as Block_0; for graphs built with --modules", default=""),
            Option("--op", TEXT, "draw", "NAME", "an op, with what it reads and what reads its results", default=""),
            Option("--around", WHOLE, "draw", "NODE", "the node with this id, and those near it"),
            Option("--hops", HOPS, "draw", "N", "how many tensors away from --op (1), or dependencies from --around (2), in "
                   "both directions"),
            Option("--stream", NUMBERS, "draw", "S", "activities of this stream; repeatable", "streams"),
            Option("--time", TIMES, "draw plot", "FROM:TO",
                   "nodes that run between these times, in µs from the first start", "time_us"),
        )),
        Group("", (
            Option("--picture", TEXT, "draw", "", "what an .svg shows: data flow, or threads and streams as lanes over time "
                   "(lanes for --around, --stream and --time, else flow)", choices=(FLOW, LANES)),
        )),
    ),
    "trace-merge": (Group("output", (_json("the summary"),)),),
    "trace-scale": (
        Group("the other job", (
            Option("--data-parallel", COUNT, "scale", "K", "how many copies of the job to make"),
            Option("--data-parallel-group", TEXTS, "scale", "NAME", "a data-parallel group, by its recorded name, "
                   "description or ranks (0,1); with =all_reduce (or other types) only these collectives of it; repeatable "
                   "(default: groups described as such, or that reduce gradients)", "groups"),
            Option("--remove-ranks", RANKS_OF_JOB, "scale", "RANKS", "leave out these ranks first, such as 4-7 or 0,2",
                   default=()),
            Option("--bandwidth", POSITIVE, "scale", "GIB/S", "of the network of groups that grow, in 2**30 bytes per "
                   "second (default: fitted)", "bandwidth_gib_s"),
            Option("--latency", POSITIVE, "scale", "NS",
                   "of a step there, such as from a rank to the next in a ring (default: fitted)", "latency_ns"),
        )),
        Group("refused, because this would be another program: trace that one",
              tuple(Option(spelling, TEXT, "", "K", why) for spelling, why in REFUSED.items())),
        Group("output", (
            Option("--jobs", COUNT, "scale", "N", "how many processes (default: the number of cores)"),
            _json("the report"),
        )),
    ),
    "trace-generate": (
        Group("the job", (
            Option("--ranks", WHOLE, "generate", "N", "ranks (default: the job's own)"),
            Option("--steps", WHOLE, "generate", "N", "training steps (default: the job's own)"),
            Option("--layers", WHOLE, "generate", "N", "layers of the model (default: the job's own)"),
            Option("--size", MEGABYTES, "generate", "MB",
                   "make as many steps as give about MB megabytes of uncompressed traces for each rank", "size_mb"),
            Option("--seed", WHOLE, "generate", "N", "equal seeds give equal bytes (default: 0)", default=0),
            Option("--machine-seed", WHOLE, "generate", "N", "draw the machine at random with this seed: latencies, gaps, "
                   "stalls, clocks and concurrency (default: a machine without disturbances)"),
        )),
        Group("what is recorded", (
            Option("--stacks", WHOLE, "generate", "N", "record Python's calls, like with_stack=True: N rows for each op "
                   "that Python calls (8, like a small transformer; use 100 for large frameworks)", default=0,
                   settings={"nargs": "?", "const": 8}),
            Option("--no-sync-records", FLAG, "generate", "", "leave out cuda_sync rows, as PyTorch does by default"),
            Option("--scale", TEXTS, "generate", "SPEC", "add to the truth how long the job takes with REGEX=F or "
                   "class:NAME=F (host, computation, communication, memory); the SPECs of one --scale are one change",
                   "changes", settings={"nargs": "+"}),
        )),
        Group("output", (
            Option("--gzip", FLAG, "generate", "", "compress the traces", "compress"),
            Option("--json", FLAG, "", "", "print the summary as JSON on stdout"),
        )),
    ),
}
# fmt: on


def form_of(path: str) -> str:
    """Returns the suffix that tells the form of a view, without .gz.

    >>> form_of("around.svg.gz")
    '.svg'
    """
    return "." + path.removesuffix(".gz").rpartition(".")[2]


def _rows() -> Iterator[Option]:
    return (option for groups in COMMANDS.values() for group in groups for option in group.options)


def options_of(call: str) -> dict[str, Option]:
    """Returns the options that a call has, by their names in Python.

    >>> [*options_of("Window")]
    ['steps', 'annotation', 'clock']
    """
    return {option.key: option for option in _rows() if call in option.calls.split()}


def chosen_for(call: str, options: Any) -> dict[str, Any]:
    """Returns the arguments of a call that the options of a command give, without those that were not given."""
    values = {name: getattr(options, name, None) for name in options_of(call)}
    return {name: value for name, value in values.items() if value is not None}


def checked(call: str, owner: str = "", /, **arguments: Any) -> dict[str, Any]:
    """Returns arguments of a call from Python, numbers and lists of them as Python's own.

    Raises TypeError or ValueError for one of the wrong kind; `owner` is what the caller wrote before the call.
    """
    rows = options_of(call)
    for name, value in arguments.items():
        if value is not None:
            checked_value = rows[name].kind.check(value, f"{owner}{call}({name}=…)")
            arguments[name] = value if checked_value is None else checked_value
    return arguments
