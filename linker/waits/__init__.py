"""Who waited for whom: takes a process's submissions and returns the waits of host and device, by records, else by the
order and times of calls.
"""

from .synchronisation import Synchronisation as Synchronisation, synchronise as synchronise
