"""What a host thread does by itself: it opens and closes ops, works, and makes calls that neither launch nor wait."""

from .instructions import HOST, Begin, Call, End, HostWork
from .record import NONE
from .state import IDLE, Simulation, Thread


def begin_op(simulation: Simulation, thread: Thread, begin: Begin) -> bool:
    """Opens an op on the thread. Always True: the thread goes on."""
    process, op = thread.process, begin.op
    record = process.record
    forward = process.threads[begin.forward_thread - 1].op if op.scope == 1 and begin.forward_thread else NONE
    row = record.ops.append(
        process.code(op, record.op_table),
        thread.index,
        thread.time,
        NONE,
        thread.op,
        begin.sequence,
        begin.forward_thread,
        forward,
        begin.comm_sequence,
    )
    thread.rows.append(row)
    thread.factors.append(None if op.is_step else simulation.factors.of(op.name, HOST))
    return True


def end_op(_: Simulation, thread: Thread, __: End) -> bool:
    """Closes the innermost open op. Always True: the thread goes on."""
    thread.process.record.ops.end[thread.rows.pop()] = thread.time
    thread.factors.pop()
    return True


def do_work(simulation: Simulation, thread: Thread, work: HostWork) -> bool:
    """Work of the innermost open op. Always True: the thread goes on."""
    thread.time += simulation.host_ns(thread, IDLE, work.ns)
    return True


def make_call(simulation: Simulation, thread: Thread, call: Call) -> bool:
    """Makes a call that neither launches nor waits. Returns True always: the thread goes on."""
    simulation.call(thread, call.name, call.ns)
    return True
