"""Jobs of as many steps as give traces of a size."""

from collections.abc import Callable
from tempfile import TemporaryDirectory

from .engine import simulate
from .files import write_traces
from .job import Job

MB = 1_000_000


def sized_job(job_of_steps: Callable[[int], Job], megabytes: float, *, stacks: int = 0) -> Job:
    """Returns the job with as many steps as give about so many megabytes of uncompressed traces for each rank.

    `stacks` is how many rows of Python's calls the traces have for each op, as of `write_traces`.
    """
    two, four = (_size(job_of_steps(steps), stacks) for steps in (2, 4))
    return job_of_steps(max(1, round(2 + 2 * (megabytes * MB - two) / (four - two))))


def _size(job: Job, stacks: int) -> int:
    """Returns the bytes of the first rank's traces."""
    with TemporaryDirectory(prefix="execgraph-generate-") as folder:
        return sum(path.stat().st_size for path in write_traces(simulate(job), folder, stacks=stacks)[0])
