"""What rules look at and return: a job's ranks, reduced to what is needed, with their replay; and findings."""

from .finding import LEAST_PCT as LEAST_PCT, Change as Change, Finding as Finding, Gain as Gain
from .job import Job as Job, is_of_kind as is_of_kind, job_of as job_of
from .rank_facts import RankFacts as RankFacts, facts_of as facts_of
from .recording_cost import recording_cost as recording_cost
