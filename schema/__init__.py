"""File formats: the graph's protobuf messages, the linked trace, and the records of every JSON input and output."""
