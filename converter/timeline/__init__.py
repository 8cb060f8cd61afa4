"""The host's time: linked ops and calls in, slices, waits and idle time of every thread out."""

from .timeline import IDLE as IDLE, Timeline as Timeline, names_of as names_of, slice_host as slice_host
