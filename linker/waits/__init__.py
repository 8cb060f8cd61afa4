"""Who waited for whom: a process's submissions in, waits of host and device out, by records or else by what calls and
times tell.
"""

from .synchronisation import Synchronisation as Synchronisation, synchronise as synchronise
