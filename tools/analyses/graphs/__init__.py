"""Launches of CUDA and HIP graphs, and the ops that their kernels were captured from."""

from .graph_replays import graph_replays as graph_replays
