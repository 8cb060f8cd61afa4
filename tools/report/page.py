"""Draws a report as one HTML page that needs no network; only this loads the libraries. `frontend` has the rest."""

import hashlib
import re
from base64 import b64encode
from contextlib import suppress
from itertools import chain
from pathlib import PurePath
from typing import Any

import orjson

from ...schema.arguments import FilePath
from ...schema.errors import DataError, Spelled, WrongUsage, require
from ...schema.io import open_output
from ..analyses import Table
from ..terminal import plain, plain_json
from .bars import flow_boxes
from .cells import FEWEST, MAX_BYTES, embed_tables
from .charts import CHARTS, gains, limits, spent
from .drawing import Chart
from .output import absent_tables
from .report import Report, groups_table, in_words
from .sections import DETAILS, LARGEST, OF_NO_RECORDING, OVERVIEW, SECTIONS, Section
from .statements import STATEMENTS, facts, key_figures, overlap

UNIT = re.compile(r"(?<=\d) (?=%|[nµm]s\b|s\b|[KMGT]iB\b)")
MOST_BYTES = 9_400_000
"""The most bytes of rows, charts, timeline and library together, so that pages stay below 10 MB."""
HALF = {"axis": {"labelLimit": 230}, "legend": {"columns": 4}}
"""The configuration of charts on half of the page, where it differs from charts.js."""
SCRIPTS = [
    f"{name}.js"
    for name in ("common", "tables", "timeline_data", "timeline_drawing", "timeline", "choice", "flow", "charts")
]


def check_page_name(path: FilePath) -> None:
    """Raises WrongUsage for a name that ends, but not as a page's."""
    if PurePath(path).suffix.lower() not in (".html", ".htm", ""):
        remedy = f"name a file that ends in .html or .htm, or redirect the text, > {path}"
        in_terminal = f"argument -o/--output: {path} would hold an HTML page: {remedy}"
        raise WrongUsage(str(Spelled(in_terminal, f"{path}: the report is an HTML page; name it .html")))


class _Page:
    """Charts by the id of their element, and tables with the column by whose largest values rows are selected."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.charts: dict[str, Chart] = {}
        self.tables: dict[str, tuple[Table, str]] = {}

    def add_charts(self, name: str, charts: list[Chart], half: bool = False) -> list[str]:
        """Adds charts over the whole or half of the page's width, and returns their element ids."""
        by_id = {f"{name}-{number}": chart | {"config": HALF} if half else chart for number, chart in enumerate(charts)}
        self.charts |= by_id
        return [*by_id]

    def add_table(self, table: Table) -> str:
        """Adds a table, of a long one the rows with the largest values of a column, and returns its name."""
        self.tables[table.name] = table, LARGEST.get(table.name, "") if len(table) > FEWEST else ""
        return table.name

    def section(self, section: Section) -> dict[str, Any] | None:
        """Adds the charts and tables of a section, and returns what the page says of it; None if it has no table."""
        report = self.report
        tables = [table for table in map(report.page_table, section.tables) if table is not None]
        if not tables:
            return None
        shown, note = [table for table in tables if len(table)], tables[0].note
        charts = [self.add_charts(table.name, CHARTS[table.name](table)) for table in shown if table.name in CHARTS]
        as_recorded = report.as_recorded if section.name not in OF_NO_RECORDING else ""
        notes = [f"Times in this section are {as_recorded}."] if as_recorded else []
        prove = STATEMENTS.get(section.name)
        return {
            "name": section.name, "label": section.label, "title": report.tables[section.name].title,
            "proves": prove(report.tables) if prove else "", "reads": section.reads.format(options=report.options),
            "charts": [*chain.from_iterable(charts)], "tables": [*map(self.add_table, shown)],
            "notes": notes + ([f"{note[0].upper()}{note[1:]}."] if note else []),
        }  # fmt: skip

    def content(self) -> dict[str, Any]:
        """Adds all charts and tables to the page, and returns its texts and what refers to them."""
        report, tables = self.report, self.report.tables | {"ranks": self.report.ranks}
        groups = {group: [*filter(None, map(self.section, sections))] for group, sections in SECTIONS.items()}
        shown = {group: [section for section in sections if section["tables"]] for group, sections in groups.items()}
        without_rows = [report.tables[section["name"]] for section in chain(*groups.values()) if not section["tables"]]
        absent = absent_tables(without_rows, report.on_device)
        ranks = groups_table(report.groups, report.ranks) if report.groups else report.ranks
        return {
            "report": report, "figures": key_figures(tables),
            "verdict": report.verdict.removesuffix(report.recording_cost).rstrip(),
            "clock_of_gains": "the recorded run" if report.is_of_recording else "the unprofiled run",
            "section_of": {table: section for section in chain(*shown.values()) for table in section["tables"]},
            "together": overlap(report.together) if report.together else "",
            "facts": [*facts(tables), *([in_words(report.groups)] if report.groups else [])],
            "spent": self.add_charts("spent", spent(report), half=True),
            "limits": self.add_charts("limits", limits(report), half=True),
            "gains": self.add_charts("gains", gains(report), half=True), "ranks": self.add_table(ranks),
            "rank_count": len(ranks), "overview": shown.pop(OVERVIEW),
            "groups": {group: sections for group, sections in shown.items() if sections or group == DETAILS},
            "details": DETAILS, "empty": [f"{reason}: {'; '.join(titles)}." for reason, titles in absent.items()],
        }  # fmt: skip


def render(report: Report) -> str:
    """Returns the page as HTML. Raises MissingLibrary if the libraries that draw it are not installed."""
    require("report")
    import jinja2

    page, flow = _Page(report), flow_boxes(report.data_flow) if report.data_flow else None
    content = page.content()
    # `</script` would end a script even inside a string
    parts = drawing_library(), "".join(map(_text, SCRIPTS))
    scripts = [part.replace("</script", "<\\/script").replace("\r\n", "\n") for part in parts]
    json = {"specs": orjson.dumps(page.charts, option=orjson.OPT_SERIALIZE_NUMPY)}
    json |= {"timeline-data": report.timeline.json} if report.timeline else {}
    json |= {"flow-data": orjson.dumps(flow)} if flow else {}
    embedded = {name: _in_script(text) for name, text in json.items()}
    room = MOST_BYTES - sum(map(len, (scripts[0], *embedded.values())))
    tables = embed_tables(page.tables, min(MAX_BYTES, room))
    rows = ",".join(f'"{name}":{_in_script(table)}' for name, table in tables.items())
    embedded["rows"] = f"{{{rows}}}"
    digests = " ".join(f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # a line does not end between a number and its unit
        finalize=lambda value: UNIT.sub("\u00a0", plain(value)) if type(value) is str else value,
    )
    environment.filters["thousands"] = "{:,}".format
    template, style = environment.from_string(_text("page.html")), _text("page.css")
    made: str = template.render(content, flow=flow, digests=digests, style=style, scripts=scripts, embedded=embedded)
    return made


def _in_script(json: bytes) -> str:
    """Returns JSON that can be part of a script, which would end at a `</script` even inside a string."""
    return plain_json(json).decode().replace("<", "\\u003c")


def _text(name: str) -> str:
    from importlib.resources import files  # of which only the page has a need

    return (files(__package__) / "frontend" / name).read_text("utf-8")


def drawing_library() -> str:
    """Returns a script that gives a page `vegaEmbed`, bundled once per version, as that takes long."""
    from importlib.metadata import version

    import platformdirs

    folder, stem = platformdirs.user_cache_path("execgraph"), f"vega-embed-{version('vl-convert-python')}-"
    for path in folder.glob(f"{stem}*.js"):
        with suppress(OSError):
            content = path.read_bytes()
            # the name has the digest of the content, so a damaged or changed file is not used
            if path.name == f"{stem}{_digest(content)}.js":
                return content.decode()
    import vl_convert  # 40 MB that are not needed again

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError, DataError):  # a cache that cannot be written costs a second, not the report
        folder.mkdir(parents=True, exist_ok=True)
        with open_output(str(folder / f"{stem}{_digest(bundle.encode())}.js")) as stream:
            stream.write(bundle.encode())
    return bundle


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
