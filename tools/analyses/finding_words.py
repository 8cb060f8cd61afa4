"""The words of findings: a member for each finding, and for what several of them say, each with its templates.

Rules give members, numbers and names, never words: nothing depends on these, and they are made when printed.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from string import Formatter
from typing import Any, NamedTuple

from ...schema.columns import bytes_text, time_text
from ...schema.graph import Delay
from ...schema.reasons import in_words
from ..sync_records_advice import SETTING
from ..terminal import ranges


class FindingWords(NamedTuple):
    """What was found, what to try, the facts that show it, what brings the gain in short, and the change that asks."""

    title: str
    advice: str
    facts: str = ""
    remedy: str = ""
    question: str = ""


# fmt: off
class Found(Enum):
    """What rules find, and the words for it."""

    SMALL_KERNELS = FindingWords("The host launches small kernels more slowly than the device runs them",
        "Launch many at once: {graph}, torch.compile(mode='reduce-overhead'), or larger batches. Launching a graph takes time, too, and "
        "its shapes must not change",
        "{count:,} launches{steps:2+ in # steps}, each of which takes the host {host:µs} and starts {device:µs} of work on the device "
        "(medians)",
        "Launching many kernels at once")
    BETWEEN_GRAPHS = FindingWords("Outside its graphs the host launches small kernels more slowly than the device runs them",
        "Capture them in a graph, fuse them, prepare the next step while a graph runs, or use larger batches",
        "{count:,} launches{steps:2+ in # steps}, each of which takes the host {host:µs} and starts {device:µs} of work on the device "
        "(medians); graphs launch {pct:.0f} % of all activities", "Fewer launches outside the graphs")
    HOST_WAITS = FindingWords("The host stops to wait for the device", "{advice}{command:+. # names the Python functions}",
        "{waits}{more:+ and elsewhere (# more)}{total:+, in all #}", "Fewer synchronising calls", "'^({calls})$=0'")
    READS = FindingWords("Each step reads results of the device: {ops}", "{advice}",
        "{calls}\nthe recording slowed the host, so that little was left to wait for. A host that is ahead of its device waits for all "
        "that it launched")
    DATA_LOADER = FindingWords("The loop waits for its data",
        "{advice}",
        "{time}{rank:+ on rank #} are spent getting data\n{recorded:+# in the recorded run}{why:+, #}",
        "Batches that are there in time", "{spec:+#}")
    BETWEEN_STEPS = FindingWords("The device has nothing to do between steps",
        "Move logging, metrics, checkpoints and learning-rate schedules off the path: do them every n-th step or in a thread. A loader of "
        "your own is found by its annotation: record_function('load batch')",
        "{time} of host work between the last launch of a step and the first one of the next, in {steps} steps",
        "Less host work between steps")
    PAGEABLE_COPIES = FindingWords("Copies to the device use pageable memory",
        "Pin the host's memory: DataLoader(pin_memory=True) or tensor.pin_memory(), then copy with non_blocking=True. Measure it: beside "
        "workers of a DataLoader pinning takes time from them",
        "{count:copy takes|copies take} {time:µs} in all, on the device and in their calls{waited:+; the host waits # for them "
        "and the work before}{rank:+, longest on rank #}", "Pinned memory")
    HEAVIEST_OP = FindingWords("{op} is the heaviest op", "{advice}",
        "it takes {time}{rank:+ on rank #}, {pct:.0f} % of the run{slow:+, without # unusually long calls}\n"
        "{recorded:+# in the recorded run}",
        "That op at twice its speed", "{spec}")
    OPTIMIZER = FindingWords("The optimizer takes {pct:.0f} % of the run",
        "Use its fused form, such as torch.optim.AdamW(…, fused=True), which may save more or less than this, or let each of its steps "
        "serve a larger batch",
        "it takes {time}{rank:+ on rank #}\n{recorded:+# in the recorded run}",
        "An optimizer twice as fast", "phase:optimizer=0.5")
    ANNOTATED_WORK = FindingWords("The work in '{name}' takes {pct:.0f} % of the run",
        "{advice}",
        remedy="Steps without it", question="{spec}")
    WITHOUT_OPS = FindingWords("No op runs {where}",
        "It sleeps, waits, or runs Python or another library: a sampling profiler shows which. Do it ahead, elsewhere, or less often",
        "This takes {time}{rank:+ on rank #}", "Leaving that out")
    CROWDED_CORES = FindingWords("Other processes{whose:+, # among them,} take cores from the loop", "{advice}",
        "of {cores} cores the loop kept {own:.1f} busy, and other processes {others:.1f}", "Cores of its own")
    PAUSES = FindingWords("{title}", "{advice}", remedy="The usual time for these calls")
    NO_TENSOR_CORES = FindingWords("Matrix products in fp32 do not use the tensor cores",
        "Allow TF32: torch.set_float32_matmul_precision('high'), or use bf16 (torch.autocast){attention:+; only bf16 speeds up attention}",
        "{count:kernel|kernels}{steps:2+ in # steps}: {time}", "The tensor cores (TF32 or bf16)")
    LOW_USE = FindingWords("Some shapes of {products} use little of the device", "{advice}", remedy="Shapes as good as the best one")
    LAYOUT_CHANGES = FindingWords("Kernels change the layout of tensors",
        "Keep the model and its inputs channels_last: model.to(memory_format=torch.channels_last)",
        "{count:kernel|kernels}{steps:2+ in # steps}, {time}", "One layout for all", "{spec}")
    EXPOSED = FindingWords("Communication of {group} is not hidden behind computation", "{advice}", remedy="Hiding that communication")
    STRAGGLER = FindingWords("The other ranks wait for rank {rank}, whose own work takes longer", "{advice}",
        "{time:µs} later than the others in all, at {count} collectives without the first", "Balanced ranks")
    LATE_START = FindingWords("Rank {rank} begins {time:µs} after the first rank",
        "Begin to record on all ranks behind a barrier, and record several steps: then only what is really late is left",
        "{pct:.0f} % of the recorded run\n"
        "its recording may have begun later, the rank was late, or times are wrong. The traces do not show which, so no gain is given")
    UNEVEN_STEPS = FindingWords("Steps take {least:µs} to {most:µs}, and figures are of all together; --steps takes some alone",
        "First steps compile and allocate: record later ones")
    UNEXPLAINED = FindingWords("For {pct:.0f} % of the run the traces do not show what it waited for",
        "Record the host trace, synchronisation records and all threads (execgraph.capture does), for several steps")
    LOST_RECORDS = FindingWords("{count:record|records} of the traces could not be used",
        "{command} says what is wrong with the files; a shorter recording loses less")
    NO_SYNC_RECORDS = FindingWords("The traces of {count:?rank|ranks} {ranks:ranks} do not record what calls waited for",
        f"Record with execgraph.capture, or give the profiler {SETTING}",
        "It is inferred from the order and time of calls. Gains can then be off by several times as much as with records")
    ABSENT_RANKS = FindingWords("{absent:,} of the job's {ranks:,} ranks {absent:?is|are} absent", "Give the traces of all ranks",
        "The replay does not wait for them ({named}), and shows only which of the other ranks held up which")
    SHARED_DEVICE = FindingWords("Ranks {ranks:ranks} may share one device: each names device {device}",
        "Give each rank a device of its own; if each has one, there is nothing to do",
        "If they share it, one rank's busy time holds waits for the other's kernels, and the device is idle less than each row says. The "
        "traces name no device beyond its number, so they do not show which it is")
    MEMORY_PEAK = FindingWords("Memory peaks at {size:bytes} on device {device} of rank {rank}",
        "If memory limits the batch: {advice}")


class Said(Enum):
    """What is said of each of several things, or in some cases only, and the words for it."""

    WAITED = "{time:µs}{rank:+ on rank #} in {count:call|calls} of {call}{op:+ in #}{function:+ (#)}"
    IN_ALL = "{time:µs}{rank:+ on rank #} in {count:call|calls}"
    CALLS = "{count:call|calls} of {call}{op:+ in #}{function:+ (#)}"
    READ_LESS = ("Read results less often: .item(), .cpu(), nonzero() and printing a loss wait for all work before; keep values on the "
        "device, copy with non_blocking=True")
    KEEP_MEMORY = ("Keep memory: unset PYTORCH_NO_{of}_MEMORY_CACHING, leave out empty_cache(), and if memory is nearly full or in "
        "pieces, use PYTORCH_{of}_ALLOC_CONF=expandable_segments:True or a smaller batch")
    WAIT_LESS = "Leave out torch.cuda.synchronize() and event.synchronize(), and measure time with torch.cuda.Event"
    SHARD_STATE = "checkpoint activations, zero gradients to None, shard the optimizer's state"
    FEWER_BITS = "use fewer bits for weights and caches, shorter caches, or more devices"
    LOAD_AHEAD = ("Load batches ahead in other processes: DataLoader(num_workers=4, prefetch_factor=2, persistent_workers=True, "
        "pin_memory=True), with more workers if there are some, or make each sample cheaper")
    LOAD_ON_CPU = ("Load batches ahead in other processes, as DataLoader(num_workers={count}, persistent_workers=True) does, if cores are "
        "free for them: {what} then takes about {least}. Or make each sample cheaper")
    NO_FREE_CORE = ("Make each sample cheaper. {busy:.1f} of {cores} cores are busy, so a process that loads ahead would take one from the "
        "loop")
    LOAD_FASTER = ("Other processes load batches ahead: give DataLoader more of them (num_workers) if cores are free, or make each sample "
        "cheaper")
    COPIES_OF_GLOO = ("gloo sends tensors of a GPU through the memory of the host, and waits for the copies: use NCCL where each rank has "
        "a GPU, or start transfers earlier")
    COMPUTE_FASTER = "Check the number of threads (OMP_NUM_THREADS, torch.set_num_threads), use bf16 or torch.compile, or a GPU"
    MORE_THREADS = ("Only {busy:.1f} of {cores} cores are busy: try more threads (OMP_NUM_THREADS, torch.set_num_threads), bf16 or "
        "torch.compile, or a GPU")
    LEAVE_OUT = "Ask whether each step needs it: do it less often, or leave it out"
    CHEAPER_FORM = "It has a backward pass, which counts: try a cheaper form, such as one fused op or torch.compile"
    OF_LOADER = "the data loader's"
    LESS_RECORDED = "whose slower loop leaves the loader more time"
    FREE_CORES = "Make each sample cheaper, load it once and keep it, or give the job more cores: every op then runs faster"
    OTHER_JOBS = "Record again when nothing else runs, or give other processes cores of their own (taskset)"
    MOST_OF = 'for most of "{name}"'
    OF_STEPS = "in long stretches of steps"
    CALL_LESS = ("It computes nothing, so that its time is the cost of calling it, {count:,} times here: torch.compile leaves most such "
        "calls out, and larger batches need fewer")
    ONE_PAUSE = "One call of {op} took {time:µs}, many times as long as usual"
    SEVERAL_PAUSES = "{count:,} calls of ops took many times as long as usual, up to {time:µs}"
    RECORD_MORE = ("The op is hardly the cause, but what paused it: another process, the allocator, garbage collection or the profiler. "
        "Record more steps to see whether it happens again, and leave these calls out of comparisons")
    WARM_UP = ("First calls load kernels, start libraries and choose algorithms: record later steps, after a warm-up; other long calls "
        "were paused by something else, such as another process, the allocator or the profiler")
    PAUSE = "{time:µs} in {op}, which usually takes {usual:µs}{more:+, and # more}"
    CUDA_GRAPH = "a CUDA graph (torch.cuda.graphs)"
    DEVICE_GRAPH = "a graph of the device"
    PRODUCTS = "matrix products"
    CONVOLUTIONS = "convolutions"
    ATTENTION = "attention"
    FIT_PRODUCTS = "Make dimensions multiples of 8 (fp16, bf16) or 16, join small products into batched or larger ones, use a larger batch"
    FIT_CONVOLUTIONS = ("Use memory_format=torch.channels_last, channels that are multiples of 8, torch.backends.cudnn.benchmark = True, "
        "or a larger batch")
    FIT_ATTENTION = ("Compare the kernels that torch.nn.attention.sdpa_kernel chooses from, use fp16 or bf16, heads of 64 or 128, or a "
        "larger batch")
    SHAPE = "{op}{tensors} with {bits}-bit numbers at {pct:.0f} % of the peak, {time}"
    BEST_SHAPE = "the best shape reaches {pct:.0f} %"
    UNNAMED_GROUP = "unnamed group"
    TRANSFERS = "{count:transfer|transfers}{each:+ on each rank} of {time:µs} (median)"
    TRANSFERS_OF_SIZES = "{count:transfer|transfers}{each:+ on each rank}, of {sizes}{last:+ and #} (medians)"
    SIZE = "{size:bytes} in {time:µs}"
    TWICE_THE_BANDWIDTH = "at twice the bandwidth the run would be {pct:.0f} % shorter"
    NOT_SAVED = ("exposed communication takes up to {exposed:.0f} % of the run, but{waited:+ # % is waiting for late ranks, and} most of "
        "the rest is beside the critical path: a faster network saves neither")
    WAITING_FOR_ABSENT = "this includes waiting for {count:absent rank|absent ranks}"
    MERGE = ("Most of this time goes to transfers too small for the network's speed: merge them (DDP: bucket_cap_mb, gradient "
        "accumulation); more bandwidth would help little")
    SEND_FEWER = ("Most of this time goes to transfers too small for the network's speed: send fewer, larger ones; more bandwidth would "
        "help little")
    OVERLAP = ("Overlap it: start it earlier and wait later (DDP buckets, FSDP prefetch, async_op=True); there is enough computation to "
        "hide it. Else send less (bf16, gradient accumulation)")
    SEND_LESS = "There is too little computation to hide it: send less (bf16, gradient accumulation), or use a faster network"
    WORK_TAKES = "its {work} work takes {ratio:.2f} times as long as that of the others"
    BALANCE = "Balance the work (batch, sequence lengths, experts), or check that device: clocks, temperature, other users"
    COMPARE_HOSTS = "Compare its host work with another rank's: data loading, logging, CPU pinning, other processes on that machine"
    DELAY = "{time:µs} {cause:delay}"
    UNKNOWN_STARTS = "{time:µs} before the first work of a thread or stream, which waits for nothing recorded"
    RECORDS = "{reason:reason}: {count:,}"
    MORE_REASONS = "and {count} more reasons"
    ALLOCATED = "Allocated {shares}"
    SHARE_BEFORE = "{op} {pct:.0f} %"
    SHARE = "by {op} {pct:.0f} %"
    PEAK_IN = "In {step}"
    NO_STEP = "no step"

    def __str__(self) -> str:
        return SAID_WORDS[self]

    def of(self, **values: object) -> "Sentence":
        """Returns this with the numbers and names in it."""
        return Sentence(self, values)


# fmt: on
FOUND_WORDS: dict[Found, FindingWords] = {found: found.value for found in Found}
SAID_WORDS: dict[Said, str] = {said: said.value for said in Said}
DELAY_WORDS = {
    Delay.LOST_RECORDS: "where records are missing", Delay.CONTENTION: "in which the device was full",
    Delay.START_OF_RECORDING: "in which work from before the recording was still running",
    Delay.UNEXPLAINED: "for no known reason",
}  # fmt: skip
FORMATS: dict[str, Callable[[Any], str]] = {
    "µs": time_text, "bytes": bytes_text, "ranks": ranges, "reason": in_words, "delay": DELAY_WORDS.__getitem__,
}  # fmt: skip


class Sentence(NamedTuple):
    """What is said, with the numbers and names in it; as text, its words."""

    said: Said
    values: Mapping[str, object]

    def __str__(self) -> str:
        return in_template(SAID_WORDS[self.said], self.values)


class _Formatter(Formatter):
    """Knows lists, FORMATS, "copy|copies" for a number, "?is|are" for the word, "+ in #" for any, "2+" for two."""

    def format_field(self, value: Any, spec: str) -> str:
        if spec in FORMATS:
            return FORMATS[spec](value)
        if spec.startswith("2+"):
            return spec[2:].replace("#", str(value)) if value >= 2 else ""
        if spec.startswith("+"):
            return "" if value is None or value == "" else spec[1:].replace("#", str(value))
        if "|" in spec:
            word = spec.removeprefix("?").split("|")[int(value != 1)]
            return word if spec.startswith("?") else f"{value:,} {word}"
        return ", ".join(map(str, value)) if isinstance(value, list) else format(value, spec)


def in_template(template: str, values: Mapping[str, object]) -> str:
    """Returns a template with numbers and names in it."""
    return _Formatter().vformat(template, (), values)
