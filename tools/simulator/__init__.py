"""When ASTRA-sim finishes each rank of a job, without the simulator: graphs and its configuration in, times out."""

from .configuration import (
    Configuration as Configuration,
    configuration_of as configuration_of,
    read_configuration as read_configuration,
)
from .rules import simulated_ends as simulated_ends
from .simulated_ranks import (
    Simulated as Simulated,
    describe_simulated as describe_simulated,
    simulate_ranks as simulate_ranks,
)
