"""What people do around a graph: capture, generate, build, replay, measure."""
