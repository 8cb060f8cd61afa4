"""What `import execgraph` gives."""

from .converter.options import Options
from .converter.targets import GoalOptions
from .execution_graph import Dependency, ExecutionGraph, Node, read_graph
from .job import Job, build, read_job
from .linked_trace import LinkedTrace, convert, diagnose, generate, link, merge, read_linked
from .linker.readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
from .linker.windows import Window
from .run import Replay, Report, WhatIf, compare, replay, report, what_if
from .schema.columns import Frame
from .schema.comm_groups import read_groups, write_groups
from .schema.errors import DataError, MissingLibrary, RequestError
from .schema.graph import CollectiveType, ConvertReport, Delay, DependencyKind, NodeType, TargetChanges
from .schema.linked import write_linked
from .tools.analyses import AnalysisOptions
from .tools.capture import capture
from .tools.job import AstraSimOptions, Diagnosis, MergeReport
from .tools.replay import MakespanRange, ReplaySummary, Scale, Simulated, replay_ranks

__all__ = [
    "AnalysisOptions", "AstraSimOptions", "CollectiveType", "ConvertReport", "DataError", "Delay", "Dependency",
    "DependencyKind", "DeviceTrace", "Diagnosis", "ExecutionGraph", "Frame", "GoalOptions", "HostTrace", "Job",
    "LinkedTrace", "MakespanRange", "MergeReport", "MissingLibrary", "Node", "NodeType", "Options", "Replay",
    "ReplaySummary", "Report", "RequestError", "Scale", "Simulated", "TargetChanges", "WhatIf", "Window", "build",
    "capture", "compare", "convert", "diagnose", "generate", "link", "merge", "read_device_trace", "read_graph",
    "read_groups", "read_host_trace", "read_job", "read_linked", "replay", "replay_ranks", "report", "what_if",
    "write_groups", "write_linked",
]  # fmt: skip
