"""The options of all commands and of calls from Python: one row for each, so that both take them alike."""

from pathlib import Path
from typing import Any, get_args

from ..schema.arguments import ASTRA_SIM, GOAL, MOST_MESSAGES, TARGETS, InputsOutputs, Promotion, Simulator
from ..schema.device_peaks import Peak
from ..schema.errors import Spelled, WrongUsage
from . import option_kinds as kind
from .option_kinds import Group, Option

PICTURES = (".svg", ".png", ".pdf")
FORMS = (*PICTURES, ".dot", ".graphml")
"""The endings of files in which a graph is viewed."""
FLOW, LANES = "flow", "lanes"
"""What a picture of a graph shows."""
SCALABLE = ("host", "computation", "communication", "memory", "delay")
"""The classes of nodes whose durations can be changed."""
WINDOW_RULE = "If you give several, the part is what they have in common"
CUTTING_RULE = f"""\
{WINDOW_RULE}. The whole trace is linked
and then cut. A call belongs to the part in which it starts, and an activity to the part
of its launch call. An op belongs to every part that it overlaps, cut to its borders.
Waits and hand-offs across a border are left out and counted; what they delayed starts
as measured"""
SCALE_RULE = f"""\
A SPEC of --scale is one of these. F is a factor such as 0.5, or a time such as 20ms:
  REGEX=F          nodes whose name matches
  class:CLASS=F    {", ".join(SCALABLE)}; F is a factor
  under:REGEX=F    all work within calls whose name matches
  phase:PHASE=F    data_loading, backward, optimizer or forward_and_other, with its kernels
  module:REGEX=F   all work in nn.Modules whose name matches
  bound:LIMIT=F    kernels that compute or memory limits; F is a factor
  rank:N/SPEC      the same on rank N alone
If several apply to a node, factors multiply"""

# fmt: off
MODULES = Option("--modules", "give each op and activity its nn.Module and Python function, from Python's calls; "
                 "record them with capture(modules=True), or with_stack=True and with_modules=True", calls="link build report compare")
WINDOW = Group("a part of a long trace", (
    Option("--steps", "profiler step A, or steps A up to but not including B; a step lasts until the next one begins",
           kind.STEPS, "A[:B]"),
    Option("--annotation", "the first annotation of this name; with :K the one after K others; with :all from the "
           "first to the last", kind.TEXT, "NAME[:K|:all]"),
    Option("--window", "from T0 to T1 µs after recording began, as viewers show it", kind.CLOCK, "T0:T1", name="clock"),
), WINDOW_RULE, calls="Window")
GRAPH = (
    Option("--target", "what the graph is for: generic; astra-sim, which replaces what that simulator cannot run, and "
           "counts it; goal, one file for the whole job for LogGOPSim and ATLAHS, which only trace-build writes "
           "(generic)", kind.TEXT, default=TARGETS[0], choices=TARGETS),
    Option("--promote", "sync: the host runs ahead of the device, as it did; all: the host waits for everything that "
           "it launches (sync)", kind.TEXT, default="sync", choices=get_args(Promotion)),
    Option("--no-host", "only device activities; host time that they waited for is added to them"),
    Option("--io", "keep the tensors of ops, or leave them out (full)", kind.TEXT, default="full",
           choices=get_args(InputsOutputs)),
    Option("--no-inferred", "leave out edges that are known from timing alone"),
)


def _json(what: str) -> Option:
    return Option("--json", f"print {what} as one JSON object on stdout")


def _scale(what: str, calls: str = "") -> Option:
    return Option("--scale", f"{what} with these times changed; repeatable", kind.SCALES, "SPEC", calls, "changes")


def _peak(calls: str = "AnalysisOptions") -> Option:
    peaks = f"TFLOP/s of {', '.join(Peak._fields[:-1])}, or GB/s of {Peak._fields[-1]}"
    return Option("--peak", "a peak of the devices, if their names do not tell it or they run slower: "
                  f"{peaks}; repeatable", kind.PEAKS, "NAME=N", calls, "peaks")


AS_RECORDED = Option("--as-recorded", "take the recorded run, even where the unprofiled one is known",
                     calls="replay what_if report build")
LIMITS = (
    Option("--max-size", "the size to which a compressed file may grow, such as 20G; raise it for files that you trust "
           "(default: far more than traces need)", kind.SIZE, "SIZE"),
)
LOUDNESS = (
    Option("-v --verbose", "also say which files are read, which step runs and how long it took", name="verbose"),
    Option("-q --quiet", "print no summary, notes or progress; results and errors are still printed", name="quiet"),
)
COMMANDS: dict[str, tuple[Group, ...]] = {
    "trace-link": (
        Group("input", (
            Option("--host-trace --chakra-host-trace", "the host trace, by name (PyTorch Execution Trace; the second "
                   "spelling is Chakra's)", kind.TEXT, "ET"),
            Option("--device-trace --chakra-device-trace", "the device trace, by name (Kineto trace or rocpd database; "
                   "- is stdin)", kind.TEXT, "KINETO"),
            Option("--rank", "the rank of a trace that records none, or the one to take from a folder or a merged "
                   "trace", kind.WHOLE, "N", "link"),
            Option("--allow-mismatch", "link files that do not seem to be of one run and rank", calls="link"),
            Option("--strict", "refuse damaged files instead of using what can be read", calls="link"),
            MODULES,
        )),
        WINDOW._replace(intro=CUTTING_RULE),
        Group("output", (_json("the summary"),)),
    ),
    "trace-convert": (
        Group("input", (
            Option("--comm-groups", "the numbers of the job's process groups, as trace-build writes them", kind.TEXT,
                   "FILE"),
        )),
        Group("what the graph holds", (
            *GRAPH,
            Option("--no-delays", "leave out delays, which are device time that no dependency explains"),
            Option("--shortest-slice", "make host slices that are shorter part of a neighbour (1 if few are, else 0)",
                   kind.NS_OF_US, "µs"),
        ), calls="Options to_graph"),
        Group("output", (_json("the summary"),)),
    ),
    "trace-build": (
        Group("input", (
            Option("--allow-mismatch", "build traces together that do not seem to be of one job, those without a rank "
                   "numbered by process", calls="build"),
            MODULES,
        )),
        WINDOW,
        Group("what the graphs hold", (
            *GRAPH,
            Option("--no-start-offsets", "let all ranks begin at once, as if they had begun to record together (for "
                   f"--target {ASTRA_SIM} and {GOAL})", calls="build"),
            Option("--no-excess-time", "leave out the time that collectives took beyond the fitted network (for "
                   f"--target {ASTRA_SIM} and {GOAL})", calls="build"),
        ), calls="Options to_graph"),
        Group("which run the graphs hold", (
            Option("--without-profiler", "take the unprofiled run, where it is known (graphs for "
                   f"{ASTRA_SIM} and {GOAL}, and changed ones, are of that run anyway)"),
            AS_RECORDED,
            _scale("build graphs of a run"), _peak(),
        ), SCALE_RULE, calls="build"),
        Group(f"for --target {ASTRA_SIM}", (
            Option("--bandwidth", "of a link, in 2**30 bytes per second (fitted)", kind.POSITIVE, "GIB/S",
                   name="bandwidth_gib_s"),
            Option("--latency", "of a link (fitted)", kind.POSITIVE, "NS", name="latency_ns"),
            Option("--replay", "let every node take its recorded time, collectives included"),
            Option("--roofline", "let kernels of known work take its time at the peaks of a device, such as V100:fp32, "
                   "or at TFLOPS:GB/S", kind.ROOFLINE, "DEVICE:FORMAT"),
        ), f"OUT/{ASTRA_SIM} gets the simulator's configuration: a network fitted to the measured collectives",
        calls="AstraSimOptions"),
        Group("for --target goal", (
            Option("--chunk", "the longest message (524288)", kind.COUNT, "BYTES", name="chunk_bytes"),
            Option("--max-messages", "how many messages a rank may send at most (%(default)s)", kind.COUNT, "N",
                   "build", default=MOST_MESSAGES),
            Option("--gpus-per-node", "how many ranks share a node; messages within it take nic 1 (1)", kind.COUNT,
                   "N"),
            Option("--measured-communication", "collectives and messages wait for all members, and then take their "
                   "measured time", settings={"default": None}),
            Option("--simulator", "which simulator runs it; it decides how cpus wait for each other (loggopsim)",
                   kind.TEXT, choices=get_args(Simulator)),
        ), "OUT/job.goal gets the whole job, for LogGOPSim and ATLAHS", calls="GoalOptions"),
        Group("where it runs", (
            Option("--jobs", "how many ranks to build at a time, each in a process (default: the number of cores)",
                   kind.COUNT, "N", "build scale"),
            Option("--scheduler", "build on the Dask cluster with this scheduler, tcp://…", kind.ADDRESS, "ADDR"),
            Option("--scheduler-timeout", "how long to wait for an answer of the scheduler, and for a worker (default "
                   "%(default)g)", kind.POSITIVE, "SECONDS", name="scheduler_timeout_s", default=60.0),
            Option("--force", "build ranks that are up to date, too"),
        ), calls="build"),
        Group("output", (Option("--strict", "exit with 1 for notes, too"), _json("the report"))),
    ),
    "trace-replay": (
        Group("input", (
            Option("--allow-mismatch", "replay graphs together that do not seem to be of one job", calls="replay"),
        )),
        Group("what is replayed", (
            _scale("predict a run", "replay what_if"), _peak(""),
            AS_RECORDED,
            Option("--simulator", "predict when each rank finishes in this simulator, from graphs that were made for "
                   "it and the configuration next to them", kind.TEXT, choices=[ASTRA_SIM]),
        ), SCALE_RULE),
        Group("output", (
            Option("-o --output --timeline", "write the measured and the replayed run as a trace for Perfetto (--json "
                   "prints the figures)", kind.JSON_FILE, "TIMELINE.json[.gz]", name="output"),
            _json("the figures"),
        )),
    ),
    "trace-report": (
        Group("input", (
            Option("--diff", "compare two runs, files or folders", kind.PATH, ("A", "B"), settings={"nargs": 2}),
            Option("--ranks", "only these ranks, such as 0-3,8", kind.RANKS, "A-B,C", "report"),
            Option("--allow-mismatch", "take traces that do not seem to be of one job as those of one", calls="report"),
            Option("--capture-trace", "a device trace in which CUDA graphs were captured, or ran op by op; it names "
                   "the ops behind the kernels of launched graphs; repeatable", kind.PATHS, "TRACE", "report",
                   "captures"),
            MODULES,
        )),
        WINDOW,
        Group("which analyses", (
            Option("--only", "only these analyses: {choices}; --diff has its own", kind.ONLY, "ANALYSIS", "report",
                   choices=kind.analysis_names, settings={"nargs": "+", "action": "extend", "default": None}),
            Option("--all", "print the first rows of all tables on the terminal"),
        )),
        Group("what the analyses count and show", (
            Option("--kernel-wait", "a shorter gap on a stream counts as the kernel's own wait, unless the host was "
                   "late (default %(default)g)", kind.DURATION, "µs", name="kernel_wait_us", default=30),
            Option("--slow-call", "a launch call that takes longer is slow (default %(default)g)", kind.DURATION, "µs",
                   name="slow_call_us", default=50),
            Option("--long-delay", "work that starts later after its call has a long delay (default %(default)g)",
                   kind.DURATION, "µs", name="long_delay_us", default=100),
            Option("--operator", "only kernel patterns of operators whose name contains this text (default: all)",
                   kind.TEXT, "TEXT", default=""),
            Option("--top", "how many kernels of each class to name, and how many patterns --perfetto marks (default "
                   "%(default)s)", kind.ROWS, "N", default=10),
        ), "durations in µs", calls="AnalysisOptions"),
        Group("which run it is about", (AS_RECORDED, _peak())),
        Group("output", (
            Option("--csv", "write a CSV file for each table", kind.PATH, "DIR"),
            _json("all tables"),
            Option("--perfetto", "write the device trace for Perfetto, with counters, the critical path and kernel "
                   "patterns; several ranks give TRACE.rankN.json", kind.JSON_FILE, "TRACE.json", "report"),
        )),
    ),
    "trace-diagnose": (
        Group("", (Option("--strict", "exit with 1 if something is wrong"), _json("everything"))),
    ),
    "trace-jsonize": (
        Group("output", (
            Option("--to", "what to write, if the file names do not say it", kind.TEXT, choices=("et", "json")),
            _json("the summary"),
        )),
    ),
    "trace-view": (
        Group("output", ()),
        Group("a part of the graph: nodes that meet all conditions", (
            Option("--step", "the profiler's step with this number (default for data flow: the step of median length)",
                   kind.WHOLE, "N"),
            Option("--module", "a module, by its path or a part of it, such as Block_0; for graphs built with "
                   "--modules", kind.TEXT, "NAME", default=""),
            Option("--op", "an op, with what it reads and what reads its results", kind.TEXT, "NAME", default=""),
            Option("--around", "the node with this id, and those near it", kind.WHOLE, "NODE"),
            Option("--hops", "how many tensors away from --op (1), or dependencies from --around (2), in both "
                   "directions", kind.HOPS, "N"),
            Option("--stream", "activities of this stream; repeatable", kind.NUMBERS, "S", name="streams"),
            Option("--time", "nodes that run between these times, in µs from the first start", kind.TIMES, "FROM:TO",
                   "draw plot", "time_us"),
        ), calls="draw"),
        Group("", (
            Option("--picture", "what it shows: data flow, or threads and streams as lanes over time (lanes for "
                   "--around, --stream and --time, else flow)", kind.TEXT, calls="draw", choices=(FLOW, LANES)),
        )),
    ),
    "trace-merge": (
        Group("input", (
            Option("--allow-mismatch", "merge traces that do not seem to be of one job", calls="merge"),
        )),
        Group("output", (_json("the summary"),)),
    ),
    "trace-scale": (
        Group("the other job", (
            Option("--data-parallel", "how many copies of the job to make", kind.COUNT, "K"),
            Option("--data-parallel-group", "a data-parallel group, by its recorded name, description or ranks (0,1); "
                   "with =all_reduce (or other types) only these collectives of it; repeatable (default: groups "
                   "described as such, or that reduce gradients)", kind.TEXTS, "NAME", name="groups"),
            Option("--remove-ranks", "leave out these ranks first, such as 4-7 or 0,2", kind.RANKS_OF_JOB, "RANKS",
                   default=()),
            Option("--bandwidth", "of the network of groups that grow, in 2**30 bytes per second (default: fitted)",
                   kind.POSITIVE, "GIB/S", name="bandwidth_gib_s"),
            Option("--latency", "of a link there (default: fitted)",
                   kind.POSITIVE, "NS", name="latency_ns"),
        ), calls="scale"),
        Group("output", (
            Option("--jobs", "how many processes (default: the number of cores)", kind.COUNT, "N", "scale"),
            _json("the report"),
        )),
    ),
    "trace-generate": (
        Group("the job", (
            Option("--ranks", "ranks (default: the job's own)", kind.WHOLE, "N"),
            Option("--steps", "training steps (default: the job's own)", kind.WHOLE, "N"),
            Option("--layers", "layers of the model (default: the job's own)", kind.WHOLE, "N"),
            Option("--size", "make as many steps as give about MB megabytes of uncompressed traces for each rank",
                   kind.MEGABYTES, "MB", name="size_mb"),
            Option("--seed", "equal seeds give equal bytes (default: 0)", kind.WHOLE, "N", default=0),
            Option("--machine-seed", "draw the machine at random with this seed: latencies, gaps, stalls, clocks and "
                   "concurrency (default: a machine without disturbances)", kind.WHOLE, "N"),
        ), calls="generate"),
        Group("what is recorded", (
            Option("--stacks", "record Python's calls, like with_stack=True: N rows for each op that Python calls (8, "
                   "like a small transformer; use 100 for large frameworks)", kind.WHOLE, "N", default=0,
                   settings={"nargs": "?", "const": 8}),
            Option("--no-sync-records", "leave out cuda_sync rows, as PyTorch does by default"),
            Option("--scale", "add to the truth how long the job takes with REGEX=F or class:NAME=F (host, "
                   "computation, communication, memory); the SPECs of one --scale are one change", kind.TEXTS, "SPEC",
                   name="changes", settings={"nargs": "+"}),
        ), calls="generate"),
        Group("output", (
            Option("--gzip", "compress the traces", calls="generate", name="compress"),
            Option("--json", "print the summary as JSON on stdout"),
        )),
    ),
}
# fmt: on


def form_of(path: str) -> str:
    """Returns the suffix that tells the form of a view, without .gz. Raises WrongUsage for one that is not of FORMS."""
    form = "." + path.removesuffix(".gz").rpartition(".")[2]
    if form not in FORMS:
        raise WrongUsage(f"{Spelled('--output ', '')}{path}: the name must end in {', '.join(FORMS)}")
    return form


def path_of_rank(path: str, rank: int, several: bool) -> str:
    """Returns the file of a rank: `path`, or for one of several ranks a file beside it, `out/run.rank3.json.gz`."""
    if not several:
        return path
    stem, dot, ending = Path(path).name.partition(".")
    return str(Path(path).with_name(f"{stem}.rank{rank}{dot}{ending}"))


ROWS = [
    option._replace(calls=option.calls or group.calls)
    for groups in COMMANDS.values()
    for group in groups
    for option in group.options
]


def options_of(call: str) -> dict[str, Option]:
    """Returns the options that a call has, by their names in Python."""
    return {option.key: option for option in ROWS if call in option.calls.split()}


def chosen_for(call: str, options: Any) -> dict[str, Any]:
    """Returns the arguments of a call that the options of a command give, without those that were not given."""
    values = {name: getattr(options, name, None) for name in options_of(call)}
    return {name: value for name, value in values.items() if value is not None}


def checked(call: str, owner: str = "", /, **arguments: Any) -> dict[str, Any]:
    """Returns arguments of a call, numbers as Python's own. Raises TypeError or ValueError for the wrong kind."""
    rows = options_of(call)
    for name, value in arguments.items():
        if value is not None:
            checked_value = rows[name].kind.check(value, f"{owner}{call}({name}=…)")
            arguments[name] = value if checked_value is None else checked_value
    return arguments
