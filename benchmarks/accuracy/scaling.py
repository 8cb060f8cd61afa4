"""Measures the error of scaled jobs: traces of a few ranks are scaled and replayed; the simulator runs the truth.

The traces of a few ranks show neither how the network behaves among many nor what holds up single ranks by chance: a
thread that loses its core for a millisecond holds all ranks up, and among many one is always held. So machines are
drawn without such stalls, and figures with them stand beside. Exit 1 if a makespan is further off than allowed, on
machines without stalls.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

from execgraph.converter.scaling import Growth, copied, plan_scaling, rank_facts, resized
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.command import print_json, progress, run_command
from execgraph.tools.command_parser import CommandParser
from execgraph.tools.generate import DEFAULT, Job, Machine, build_job, draw_machine, simulate
from execgraph.tools.replay import replay_ranks
from execgraph.tools.workers import in_processes

from .tables import markdown
from .what_if import VARIANTS, graphs_of

NAME = "python -m benchmarks.accuracy.scaling"
LAYERS = {"ddp": 5}
"""Of jobs whose own number gives all collectives one size, which does not tell latency from bandwidth."""
FROM: dict[str, tuple[int, ...]] = {"ddp": (2, 4), "sharded": (2, 4), "pipeline_dp": (4,), "moe_dp": (4,)}
"""The ranks that are traced; a pipeline or a pair of experts on two has no replica, so that there is no group to grow.
"""
TO = (4, 8, 16, 32)
STEPS = 3
ALLOWED_PCT = 3.0


UNDISTURBED, DRAWN, STALLING = "default", "drawn", "drawn, with stalls"


class Traced(NamedTuple):
    """A job on the ranks that are traced, on a kind of machine, of which the seed draws one.

    If `is_partial`, the graphs of the first half of its ranks are used alone, without descriptions of process groups.
    """

    job: str
    ranks: int
    kind: str = UNDISTURBED
    seed: int = 0
    is_partial: bool = False

    @property
    def machine(self) -> Machine:
        """What it runs on."""
        if self.kind == UNDISTURBED:
            return DEFAULT
        drawn = draw_machine(self.seed)
        return drawn if self.kind == STALLING else replace(drawn, stalls=DEFAULT.stalls)

    def on(self, ranks: int) -> Job:
        """Returns the same job on so many ranks."""
        return build_job(self.job, ranks=ranks, steps=STEPS, layers=LAYERS.get(self.job), seed=1, machine=self.machine)


class Scaled(NamedTuple):
    """How long a job takes on more ranks, and how long its graphs take, scaled and, for comparison, unscaled."""

    traced: Traced
    ranks: int
    true_ns: int
    scaled_ns: int
    unscaled_ns: int

    @property
    def error_pct(self) -> float:
        """How much too long the scaled graphs take."""
        return 100 * (self.scaled_ns - self.true_ns) / self.true_ns

    @property
    def unscaled_error_pct(self) -> float:
        """How much too long the graphs take as they are."""
        return 100 * (self.unscaled_ns - self.true_ns) / self.true_ns


def measure(traced: Traced) -> list[Scaled]:
    """Returns the job scaled to each of TO."""
    graphs = graphs_of(simulate(traced.on(traced.ranks)), VARIANTS[0])
    if traced.is_partial:
        graphs = [_undescribed(graph) for graph in graphs[: traced.ranks // 2]]
    unscaled = replay_ranks(graphs).makespan_ns
    return [
        Scaled(
            traced, ranks, simulate(traced.on(ranks)).makespan_ns, _scaled_ns(graphs, ranks // traced.ranks), unscaled
        )
        for ranks in TO
        if ranks > traced.ranks
    ]


def _undescribed(graph: ExecutionGraph) -> ExecutionGraph:
    return replace(graph, attributes={name: column for name, column in graph.attributes.items() if name != "pg_desc"})


def _scaled_ns(graphs: Sequence[ExecutionGraph], copies: int) -> int:
    """Returns the makespan of the scaled job. All copies are alike, so that one of them shows it."""
    plan = plan_scaling([rank_facts(graph) for graph in graphs], Growth(copies))
    scaled = [copied(resized(graphs[rank.source], rank), plan, 0) for rank in plan.ranks.values()]
    return replay_ranks(scaled).makespan_ns


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Prints the table and exits with 0, with 1 if a makespan is further off than allowed, with 2 for wrong usage."""
    parser = CommandParser(
        NAME,
        "Measures on simulated jobs how right the makespan of a scaled job is.",
        f"{NAME} --machines 5",
        reads=False,
    )
    parser.add_argument(
        "--machines",
        type=int,
        default=3,
        metavar="N",
        help="besides the default machine those drawn with seeds 0 to N-1",
    )
    parser.add_argument("--jobs", nargs="*", choices=FROM, default=list(FROM), metavar="NAME", help="default: all")
    parser.add_argument(
        "--partial", action="store_true",
        help="use the graphs of the first half of the ranks alone, without descriptions of process groups",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print every figure as one JSON object on stdout")
    arguments = parser.parse_args(argv)
    if arguments.machines < 0:
        parser.error("--machines: at least 0")
    run_command(_measure, arguments, NAME)


def _measure(arguments: argparse.Namespace) -> int:
    machines = [(UNDISTURBED, 0), *((kind, seed) for kind in (DRAWN, STALLING) for seed in range(arguments.machines))]
    chosen = [
        Traced(job, ranks, *machine, arguments.partial)
        for job in arguments.jobs
        for ranks in FROM[job]
        for machine in machines
    ]
    results_of: dict[Traced, list[Scaled]] = {}
    running = partial(in_processes, jobs=os.cpu_count() or 1)(measure, chosen)
    for traced, outcome in progress(running, "measuring", total=len(chosen), unit="job"):
        if isinstance(outcome, Exception):
            raise outcome
        results_of[traced] = outcome
    results = [scaled for traced in chosen for scaled in results_of[traced]]
    if arguments.json:
        print_json({"scaled": [*map(_figures, results)]})
    else:
        print("\n".join(_table(results)))
    return int(any(abs(scaled.error_pct) > ALLOWED_PCT for scaled in results if scaled.traced.kind != STALLING))


def _figures(scaled: Scaled) -> dict[str, Any]:
    times = {"true_us": scaled.true_ns / 1000, "scaled_us": scaled.scaled_ns / 1000}
    errors = {"error_pct": scaled.error_pct, "unscaled_error_pct": scaled.unscaled_error_pct}
    of = {"job": scaled.traced.job, "from": scaled.traced.ranks, "to": scaled.ranks}
    return {**of, "machine": scaled.traced.machine.name, "kind": scaled.traced.kind, **times, **errors}


def _table(results: Sequence[Scaled]) -> Iterator[str]:
    """Yields a row per job, ranks traced and kind of machine: the largest errors per ranks scaled to, and unscaled."""
    rows = []
    for job, ranks, kind in dict.fromkeys(scaled.traced[:3] for scaled in results):
        same_job = [scaled for scaled in results if scaled.traced[:3] == (job, ranks, kind)]
        errors = [[scaled.error_pct for scaled in same_job if scaled.ranks == to] for to in TO]
        unscaled = max((scaled.unscaled_error_pct for scaled in same_job if scaled.ranks == TO[-1]), key=abs)
        cells = [f"{max(of, key=abs):+.2f}" if of else "" for of in errors]
        rows.append([job, str(ranks), kind, *cells, f"{unscaled:+.1f}"])
    yield "Largest error of the makespan in %, scaled from the ranks that were traced\n"
    yield from markdown(["job", "from", "machines", *(f"to {to}" for to in TO), f"to {TO[-1]}, unscaled"], rows)


if __name__ == "__main__":
    main()
