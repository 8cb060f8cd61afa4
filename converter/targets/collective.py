"""A collective of a job: who takes part, by which algorithm, and how long it took."""

from typing import NamedTuple

from .algorithms import CollectiveMember


class Collective(NamedTuple):
    """A collective, or a message as a collective of two members.

    `members` are positions of ranks in the job. `first` describes the first member; the others differ in their group
    rank. The last one arrives at `start_ns` on the job's clock; from then on member i takes `duration_ns[i]`, as
    measured.
    """

    algorithm: str
    members: tuple[int, ...]
    first: CollectiveMember
    start_ns: int
    duration_ns: tuple[int, ...]

    def member(self, rank: int) -> CollectiveMember:
        """Returns the member that is the rank at this position of the job."""
        return self.first._replace(group_rank=self.members.index(rank))
