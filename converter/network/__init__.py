"""How long communication takes by a network's latency and bandwidth, and the network that measured times fit."""

from .fit_errors import held_out_pct as held_out_pct
from .fitted_network import (
    GIB as GIB,
    Link as Link,
    Network as Network,
    TwoDimensions as TwoDimensions,
    fitted_network as fitted_network,
    for_more_ranks as for_more_ranks,
    network_time_ns as network_time_ns,
)
from .simulated_cost import step_cost as step_cost
from .stages import Stage as Stage, stages as stages
from .transfer_cost import (
    AWAITED_MESSAGE as AWAITED_MESSAGE,
    MESSAGE as MESSAGE,
    RING as RING,
    Cost as Cost,
    Transfer as Transfer,
    fitted_factors as fitted_factors,
)
