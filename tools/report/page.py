"""Draws a report as one HTML page that needs no network: charts, tables to search, a timeline, the flow of data.

The libraries that draw it are loaded only then. What the page shows is in `frontend`.
"""

import hashlib
import itertools
import re
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ...schema.arguments import FilePath
from ...schema.errors import DataError, require
from ...schema.io import open_output
from ..analyses import Table
from ..terminal import plain, plain_json
from .cells import FEWEST, MAX_BYTES, embed_tables
from .charts import gains, limits, spent
from .drawing import Chart
from .flow_section import FlowSection
from .module_tree import ModuleTree, module_tree
from .overview import facts, key_figures, overlap
from .rank_groups import groups_table, in_words
from .report import Report
from .sections import DETAILS, OF_NO_RECORDING, OVERVIEW, SECTIONS, WORDS, Section
from .text import absent_tables

if TYPE_CHECKING:
    import jinja2

MODULES = "modules"
UNIT = re.compile(r"(?<=\d) (?=%|[nµm]s\b|s\b|[KMGT]iB\b)")
LARGEST = 9_400_000
"""The most bytes of rows, charts, timeline and library together, so that pages stay below 10 MB."""
FEW = 10
"""Tables of more rows than this have a search field."""
HALF = {"axis": {"labelLimit": 230}, "legend": {"columns": 4}}
"""The configuration of charts on half of the page, where it differs from charts.js."""
SCRIPTS = (
    "common.js",
    "tables.js",
    "timeline_data.js",
    "timeline_drawing.js",
    "timeline.js",
    "choice.js",
    "flow.js",
    "charts.js",
)


def is_page_name(path: FilePath) -> bool:
    """Returns whether a file's name ends as a page's, or has no ending."""
    return PurePath(path).suffix.lower() in (".html", ".htm", "")


class PageSection(NamedTuple):
    """What the page says of a section: its title, what it proves, how to read it, the element ids of its charts, the
    names of its tables, notes, and modules as a tree.
    """

    of: Section
    title: str
    proves: str
    reads: str
    charts: list[str]
    tables: list[str]
    notes: list[str]
    modules: ModuleTree | None


class _Page:
    """Charts by the id of their element, and tables with the column by whose largest values rows are selected."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.charts: dict[str, Chart] = {}
        self.tables: dict[str, tuple[Table, str]] = {}

    def add(self, name: str, charts: list[Chart], half: bool = False) -> list[str]:
        """Adds charts over the whole or half of the page's width, and returns their element ids."""
        of_page = {
            f"{name}-{number}": chart | {"config": HALF} if half else chart for number, chart in enumerate(charts)
        }
        self.charts |= of_page
        return [*of_page]

    def section(self, section: Section) -> PageSection | None:
        """Adds the charts and tables of a section, and returns its description; None if it has no table."""
        tables = [table for table in map(self.report.page_table, section.tables) if table is not None]
        if not tables:
            return None
        shown = [table for table in tables if len(table)]
        charts = [self.add(table.name, draw(table)) for table in shown if (draw := section.tables[table.name].chart)]
        as_recorded = self.report.as_recorded if section.name not in OF_NO_RECORDING else ""
        note = tables[0].note
        notes = [f"Times in this section are {as_recorded}."] if as_recorded else []
        return PageSection(
            section,
            self.report.tables[section.name].title,
            section.statement(self.report.tables),
            section.reads.format(options=self.report.options),
            [*itertools.chain.from_iterable(charts)],
            [self.table(table, section.tables[table.name].by) for table in shown],
            notes + ([f"{note[0].upper()}{note[1:]}."] if note else []),
            next((module_tree(table) for table in shown if table.name == MODULES), None),
        )

    def table(self, table: Table, by: str = "") -> str:
        """Adds a table, of a long one the rows with the largest values of a column, and returns its name."""
        self.tables[table.name] = table, by if len(table) > FEWEST else ""
        return table.name

    def content(self) -> dict[str, Any]:
        """Adds all charts and tables to the page, and returns its texts and what refers to them."""
        report, tables = self.report, self.report.tables | {"ranks": self.report.ranks}
        groups = {
            group: [page_section for section in sections if (page_section := self.section(section))]
            for group, sections in SECTIONS.items()
        }
        sections = [*itertools.chain.from_iterable(groups.values())]
        shown = {group: [section for section in groups[group] if section.tables] for group in groups}
        without_rows = (report.tables[section.of.name] for section in sections if not section.tables)
        return {
            "report": report,
            "figures": key_figures(tables),
            "verdict": report.verdict.removesuffix(report.recording_cost).rstrip(),
            "clock_of_gains": "as recorded" if report.is_of_recording else "without a profiler",
            "section_of": {table: section.of for section in sections if section.tables for table in section.of.tables},
            "together": overlap(report.together) if report.together else "",
            "facts": [*facts(tables), *([in_words(report.groups)] if report.groups else [])],
            "spent": self.add("spent", spent(report), half=True),
            "limits": self.add("limits", limits(report), half=True),
            "gains": self.add("gains", gains(report), half=True),
            "ranks": self.table(groups_table(report.groups, report.ranks) if report.groups else report.ranks),
            "overview": shown.pop(OVERVIEW),
            "groups": {group: of_group for group, of_group in shown.items() if of_group or group == DETAILS},
            "details": DETAILS,
            "empty": absent_tables(without_rows, report.on_device),
            "words": WORDS,
        }


def render(report: Report) -> str:
    """Returns the page as HTML. Raises MissingLibrary if the libraries that draw it are not installed."""
    require("report")
    page, flow = _Page(report), FlowSection(report.data_flow) if report.data_flow else None
    content, of_flow = page.content(), _template("flow.html").render(section=flow, flow=flow.flow) if flow else ""
    scripts = [_script(text) for text in (drawing_library(), "".join(map(_text, SCRIPTS)))]
    json = {"specs": orjson.dumps(page.charts, option=orjson.OPT_SERIALIZE_NUMPY)}
    json |= {"timeline-data": report.timeline.json} if report.timeline else {}
    json |= {"flow-data": flow.arrows} if flow else {}
    embedded = {name: _in_script(content) for name, content in json.items()}
    room = LARGEST - sum(map(len, (scripts[0], of_flow, *embedded.values())))
    tables = embed_tables(page.tables, min(MAX_BYTES, room))
    rows = ",".join(f'"{name}":{_in_script(table.json)}' for name, table in tables.items())
    return _template("page.html").render(
        content,
        flow=of_flow,
        policy=_policy(scripts),
        style=_text("page.css"),
        scripts=scripts,
        embedded=embedded | {"rows": f"{{{rows}}}"},
        tables=tables,
        few=FEW,
    )


def _template(name: str) -> "jinja2.Template":
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # a line does not end between a number and its unit
        finalize=lambda value: UNIT.sub("\u00a0", plain(value)) if type(value) is str else value,
    )
    environment.filters["thousands"] = "{:,}".format
    return environment.from_string(_text(name))


def _policy(scripts: Iterable[str]) -> str:
    """Returns the content security policy: only these scripts run, and nothing is loaded from elsewhere.

    All inline styles are allowed, as the drawing library sets many; without network they can only change the look.
    """
    digests = " ".join(f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _in_script(json: bytes) -> str:
    """Returns JSON that can be part of a script, which would end at a `</script` even inside a string."""
    return plain_json(json).decode().replace("<", "\\u003c")


def _script(text: str) -> str:
    """Returns a script with `</script` escaped, which would end it even inside a string, and with \\n as line ends."""
    return text.replace("</script", "<\\/script").replace("\r\n", "\n")


def _text(name: str) -> str:
    from importlib.resources import files  # of which only the page has a need

    return files(__package__).joinpath("frontend", name).read_text("utf-8")


def drawing_library() -> str:
    """Returns a script that gives a page `vegaEmbed`. It is bundled once per version and kept in the user's cache, as
    bundling takes longer than most reports.
    """
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
