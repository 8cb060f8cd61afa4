"""When the members of a ring or of a direct exchange are done, by when each came; for many of them at once."""

from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


def ring_ends(arrival: Times, hop_ns: Times, steps: int) -> Times:
    """Returns when (ns) each member has received its last message in a ring. O(n) for any number of steps.

    Every member sends a message to the next one when it comes, and another one whenever it has received one; the last
    axis are the members. So a member ends with the latest of the messages that went round to it: from each member the
    one that took as many hops as the steps allow. `steps` is at least the number of members less one.

    Args:
        arrival: When each member comes.
        hop_ns: How long a message takes from each member to the next.
        steps: How many messages each receives.
    """
    count = arrival.shape[-1]
    along = np.concatenate((np.zeros_like(hop_ns[..., :1]), np.cumsum(_twice(hop_ns), axis=-1)), axis=-1)
    lead = _twice(arrival) - along[..., :-1]
    latest = np.maximum.accumulate(lead[..., ::-1], axis=-1)[..., ::-1]
    rounds, first = np.divmod(np.arange(count) - steps, count)
    return np.asarray(along[..., :count] - rounds * along[..., count : count + 1] + latest[..., first])


def direct_ends(arrival: Times, message_ns: Times) -> Times:
    """Returns when each member has its message from every other one; `message_ns[..., i, j]` is how long one from i to
    j takes.
    """
    received = arrival[..., :, None] + message_ns
    count = arrival.shape[-1]
    received[..., np.arange(count), np.arange(count)] = arrival
    return np.asarray(received.max(axis=-2))


def _twice(values: Times) -> npt.NDArray[Any]:
    return np.concatenate((values, values), axis=-1)
