"""What a trace tells of its machine: how the device clock stands against the host's, how long launches, gaps and
returns usually take.
"""

from .measured_machine import machine_of as machine_of
