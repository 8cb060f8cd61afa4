"""What the profiler writes: the records of Kineto and host traces, their times and numbers."""

from . import host, kineto
from .arguments import NO_LISTS, TENSOR, ArgumentTexts, argument_lists, listed, usable_arguments, value_texts
from .attributes import listed_attributes
from .host import GROUP_INIT, NO_TENSORS, Attr, TensorLists
from .kineto import MEMORY_CATEGORIES, Args, DeviceFile
from .literals import UNREADABLE_LISTS, integer_list, literal
from .merged_ranks import LARGEST_ID, MergedRank
from .names import name_of
from .numbers import identities, identity, integer, integers, json_value
from .plain_arguments import plain_arguments, plain_escapes
from .steps import STEP_MARK, are_step_marks
from .times import (
    FOREVER,
    LONGEST_RECORDING,
    NEVER,
    ExactTimes,
    InexactTime,
    exact_times,
    lacks_padding,
    microseconds,
    nanoseconds,
    with_padding,
)

__all__ = [
    "FOREVER",
    "GROUP_INIT",
    "LARGEST_ID",
    "LONGEST_RECORDING",
    "MEMORY_CATEGORIES",
    "NEVER",
    "NO_LISTS",
    "NO_TENSORS",
    "STEP_MARK",
    "TENSOR",
    "UNREADABLE_LISTS",
    "Args",
    "ArgumentTexts",
    "Attr",
    "DeviceFile",
    "ExactTimes",
    "InexactTime",
    "MergedRank",
    "TensorLists",
    "are_step_marks",
    "argument_lists",
    "exact_times",
    "host",
    "identities",
    "identity",
    "integer",
    "integer_list",
    "integers",
    "json_value",
    "kineto",
    "lacks_padding",
    "listed",
    "listed_attributes",
    "literal",
    "microseconds",
    "name_of",
    "nanoseconds",
    "plain_arguments",
    "plain_escapes",
    "usable_arguments",
    "value_texts",
    "with_padding",
]
