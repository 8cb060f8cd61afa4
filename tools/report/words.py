"""The meanings of the kinds of time on the page, in tables and in trace-replay."""

WORDS = {
    "host": "an op or a call of the CPU at work",
    "waiting": "a call of the CPU that waits for a device",
    "idle": "of a host thread: nothing was recorded, mostly Python between ops; of a device: nothing ran",
    "computation": "a kernel that neither communicates nor only copies",
    "communication": "a collective, a send or a receive, from its start on the rank to its end, waiting for the other "
    "ranks included",
    "memory": "a copy or a set of memory",
    "unrecorded": "time in which the host was at work that no trace recorded",
    "metadata": "nodes that only say something of others",
    "delay": "time in which, as far as the traces show, nothing was waited for",
    "carry-in": "a delay: work from before the recording still kept the stream busy",
    "launch": "from the end of the launching work on the host to the start on a free stream",
    "stream order": "the gap between an activity and the one before it on its stream",
    "event wait": "from an awaited event of another stream to the start",
    "host sync": "from the end of what the host waited for until the host goes on",
    "hand-off": "from one host thread's coming so far until another goes on",
    "collective": "after a collective that had to be done",
    "tensor flow": "after the op that wrote what is read",
    "program order": "between an op and the one before it on its thread",
    "gap": "a wait whose reason the graph does not say",
    "host delay": "host work that was left out of a graph of the device alone, where the device waited for it",
    "start offset": "a rank began later than the first one: either its recording did, or the rank was late: no trace shows which",
    "unknown start": "a thread or stream whose first work waits for nothing in the graph starts when it did",
    "hidden communication": "beside computation, so that it costs nothing",
    "exposed communication": "beside no computation, so that the run waits for it",
}
