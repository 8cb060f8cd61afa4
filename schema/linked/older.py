"""Recognises linked files of an older execgraph, in which some members had other names."""

import msgspec

OLDER_NAMES = {
    "calls": {"places"},
    "device_waits": {"found"},
    "host_waits": {"found"},
    "trace": {"carried"},
    "link_report": {"noted", "remarks"},
}
"""Members that were renamed and that every such file has, by the table that they are in."""


def has_older_names(document: bytes) -> bool:
    """Returns whether a linked file has members that were renamed since, which readers would not see."""
    top = _members(document)
    return "hand_overs" in top or any(
        names & _members(top[table]).keys() for table, names in OLDER_NAMES.items() if table in top
    )


def _members(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Returns the members of a JSON object, none of any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
