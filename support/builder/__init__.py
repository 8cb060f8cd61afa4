""" """

from support.builder.layouts import LAYOUTS as LAYOUTS
from support.builder.records import Collective as Collective, Event as Event, Group as Group, Tensor as Tensor
from support.builder.timeline import TraceBuilder as TraceBuilder
