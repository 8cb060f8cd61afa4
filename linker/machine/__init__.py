"""What a trace shows about its machine: the offset between the clocks of device and host, and how long launches, gaps
and returns usually take.
"""

from .measured_machine import machine_of as machine_of
