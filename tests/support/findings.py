"""Jobs for the rules of findings: played runs, or graphs built by hand with what the rules know of their nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from execgraph.schema.columns import Categorical
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.analyses import (
    Finding,
    Job,
    RankFacts,
    RankTrace,
    Table,
    analyse,
    facts_of,
    find,
    graph_of,
    job_of,
)

from support.builder import TraceBuilder
from support.references import linked_of
from support.runs import link_run


def played(*runs: TraceBuilder, modules: bool = False) -> Job:
    """The job whose ranks were played."""
    linked = [link_run(t, modules) for t in runs]
    ranks = [RankTrace(number, one, graph_of(one)) for number, one in enumerate(linked)]
    job = job_of([facts_of(rank) for rank in ranks], analyse(ranks))
    assert job is not None
    return job


def built(*graphs: ExecutionGraph, tables: Mapping[str, Table] | None = None, **facts: Any) -> Job:
    """The job of these graphs, of which nothing else is known but `facts` of all ranks."""
    ranks = [replace(facts_alone(graph, number), **facts) for number, graph in enumerate(graphs)]
    traces = [RankTrace(rank.rank, linked_of([]), rank.graph) for rank in ranks]
    job = job_of(ranks, {**analyse(traces, ["critical_path"]), **(tables or {})})
    assert job is not None
    return job


def facts_alone(graph: ExecutionGraph, rank: int = 0) -> RankFacts:
    nothing = Categorical.nulls(len(graph))
    return RankFacts(rank, graph, np.zeros(len(graph), np.bool_), nothing, nothing, nothing, np.empty(0, np.int64))


def titled(findings: Iterable[Finding], title: str) -> Finding:
    """The one finding whose title has this text."""
    (found,) = (finding for finding in findings if title in finding.title)
    return found


def titles(job: Job) -> list[str]:
    return [finding.title for finding in find(job)]
