"""One class for each record: what users ask of it is added to the class of the layer that makes it."""

from typing import TypeVar

T = TypeVar("T")
OF_ANY_CLASS = {
    "__module__",
    "__qualname__",
    "__slots__",
    "__annotations__",
    "__firstlineno__",
    "__static_attributes__",
}


def added_to_record(methods: type[T]) -> type[T]:
    """Adds what the class defines to the record that it derives from, and returns the record in its place.

    So a graph that `convert` made has the methods that need a layer above it, and is an `execgraph.ExecutionGraph`
    without a copy. To a type checker the class is a subclass; where a function of a lower layer returns the record, a
    cast says that these are one.

    >>> class Record:
    ...     rows = 3
    >>> @added_to_record
    ... class WithMethods(Record):
    ...     def summary(self):
    ...         return f"{self.rows} rows"
    >>> Record().summary(), WithMethods is Record
    ('3 rows', True)
    """
    record = methods.__bases__[0]
    for name, value in vars(methods).items():
        if name not in OF_ANY_CLASS:
            setattr(record, name, value)
    return record
