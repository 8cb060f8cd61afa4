"""Writes a report as one HTML file that needs no network: charts, tables to search, and a timeline."""

import hashlib
import itertools
import re
from base64 import b64encode
from collections.abc import Collection, Iterable
from contextlib import suppress
from importlib.metadata import version
from importlib.resources import files
from typing import Any, NamedTuple

import jinja2
import orjson
import platformdirs

from ...schema.errors import DataError
from ...schema.io import open_output
from ..analyses import Table
from ..terminal import plain, plain_json
from .cells import heading, shown_unit
from .charts import CHARTS, gains, limits, spent
from .drawing import Chart
from .flow_section import flow_section
from .module_tree import ModuleTree, module_tree
from .overview import facts, key_figures, overlap
from .packing import FEWEST, MAX_BYTES, EmbeddedTable, embed_tables
from .rank_groups import groups_table, in_words
from .report import Report
from .sections import DETAILS, OF_NO_RECORDING, OVERVIEW, SECTIONS, WORDS, Section
from .text import absent_tables

MODULES = "modules"
VERSION = version("vl-convert-python")
UNIT = re.compile(r"(?<=\d) (?=%|[nµm]s\b|s\b|[KMGT]iB\b)")
LARGEST = 9_400_000
"""The most bytes of rows, charts, timeline and library together, so that pages stay below 10 MB."""
FEW = 10
"""Tables of more rows than this have a search field."""
HALF = {"axis": {"labelLimit": 230}, "legend": {"columns": 4}}
"""The configuration of charts on half of the page, where it differs from page.js."""


class TableFrame(NamedTuple):
    """The frame of a table: its headings (and whether of numbers), how many of its rows are on the page, and the column
    with whose largest values, "" for all rows.
    """

    name: str
    title: str
    headings: list[tuple[str, bool]]
    rows: int
    length: int
    largest: str


class PageSection(NamedTuple):
    """An analysis on the page: its titles, what it proves, how to read it, the element ids of its charts, the names of
    its tables, a note, modules as a tree, and whether its times are as recorded.
    """

    name: str
    label: str
    title: str
    proves: str
    reads: str
    charts: list[str]
    tables: list[str]
    note: str
    modules: ModuleTree | None = None
    clock: str = ""


class PageFinding(NamedTuple):
    """A finding on the page: its sentence, gain, evidence and advice, and the section with the details, "" for none."""

    title: str
    gain: str
    evidence: str
    advice: str
    section: str
    label: str


def _page_findings(report: Report, shown: Collection[str]) -> list[PageFinding]:
    every = itertools.chain.from_iterable(SECTIONS.values())
    of_table = {table: section for section in every for table in section.tables if section.name in shown}
    page_findings = []
    for finding in report.findings:
        gain = finding.gain.text if finding.gain else ""
        section = of_table.get(finding.table)
        link = (section.name, section.label) if section else ("", "")
        page_findings.append(PageFinding(finding.title, gain, finding.evidence, finding.advice, *link))
    return page_findings


class Page:
    """Charts by the id of their element, and tables with the column by whose largest values rows are selected."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.specs: dict[str, dict[str, Any]] = {}
        self.tables: dict[str, tuple[Table, str]] = {}

    def add(self, name: str, charts: list[Chart], half: bool = False) -> list[str]:
        """Adds charts over the whole or half of the page's width, and returns their element ids."""
        names = [f"{name}-{number}" for number in range(len(charts))]
        for element, chart in zip(names, charts, strict=True):
            self.specs[element] = {**chart, "config": HALF} if half else chart
        return names

    def section(self, section: Section) -> PageSection | None:
        """Adds the charts and tables of a section, and returns its description; None if it has no table."""
        tables = [table for table in map(self.report.page_table, section.tables) if table is not None]
        if not tables:
            return None
        not_empty = [table for table in tables if len(table)]
        charts = [
            element
            for table in not_empty
            if table.name in CHARTS
            for element in self.add(table.name, CHARTS[table.name](table))
        ]
        table_names = [self.table(table, section.tables[table.name]) for table in not_empty]
        title = self.report.tables[section.name].title
        reads = section.reads.format(options=self.report.options)
        modules = next((module_tree(table) for table in not_empty if table.name == MODULES), None)
        proves, clock = section.statement(self.report.tables), self.clock(section)
        return PageSection(
            section.name, section.label, title, proves, reads, charts, table_names, tables[0].note, modules, clock
        )

    def clock(self, section: Section) -> str:
        """Returns that the times of a section are as recorded, where they differ without a profiler; else ""."""
        as_recorded = self.report.as_recorded if section.name not in OF_NO_RECORDING else ""
        return f"Times in this section are {as_recorded}." if as_recorded else ""

    def table(self, table: Table, by: str = "") -> str:
        """Adds a table, of a long one the rows with the largest values of a column, and returns its name."""
        self.tables[table.name] = table, by if len(table) > FEWEST else ""
        return table.name


def _table_frame(table: Table, embedded_rows: EmbeddedTable) -> TableFrame:
    headings = [
        (heading(column.name, shown_unit(column)[0]), not isinstance(column.values, list)) for column in table.columns
    ]
    by = heading(embedded_rows.by, "") if embedded_rows.rows < len(table) else ""
    return TableFrame(table.name, table.title, headings, embedded_rows.rows, len(table), by)


def draw_page(report: Report) -> str:
    """Returns the page as HTML."""
    page, tables = Page(report), report.tables | {"ranks": report.ranks}
    if report.twice_as_fast:
        tables["twice_as_fast"] = report.twice_as_fast
    packed = _in_script(report.timeline.json) if report.timeline else ""
    content = _content(page, tables)
    section = flow_section(report.data_flow) if report.data_flow else None
    flow = _template("page.flow.html").render(flow=section) if section else ""
    arrows = _in_script(section.arrows) if section else ""
    specs = _in_script(orjson.dumps(page.specs, option=orjson.OPT_SERIALIZE_NUMPY))
    library, *scripts = _scripts()
    embedded_tables = embed_tables(
        page.tables, min(MAX_BYTES, LARGEST - sum(map(len, (packed, specs, library, flow, arrows))))
    )
    rows = ",".join(f'"{name}":{_in_script(table.json)}' for name, table in embedded_tables.items())
    return _template("page.html").render(
        content,
        packed=packed,
        flow=flow,
        arrows=arrows,
        policy=_policy([library, *scripts]),
        style=_text("page.css") + _text("page.flow.css"),
        library=library,
        scripts=scripts,
        specs=specs,
        tables={name: _table_frame(table, embedded_tables[name]) for name, (table, _) in page.tables.items()},
        rows=f"{{{rows}}}",
        few=FEW,
    )


def _content(page: Page, tables: dict[str, Table]) -> dict[str, Any]:
    """Adds all charts and tables to the page, and returns its texts and what refers to them."""
    report = page.report
    groups = {
        group: [page_section for section in sections if (page_section := page.section(section))]
        for group, sections in SECTIONS.items()
    }
    sections = [*itertools.chain.from_iterable(groups.values())]
    return {
        "title": report.title,
        "advice": report.advice,
        "figures": key_figures(tables),
        "verdict": report.verdict.removesuffix(report.recording_cost).rstrip(),
        "recording_cost": report.recording_cost,
        "as_recorded": report.as_recorded,
        "clock_of_gains": "as recorded" if report.is_of_recording else "without a profiler",
        "findings": _page_findings(report, {section.name for section in sections if section.tables}),
        "together": overlap(report.together) if report.together else "",
        "facts": [*facts(tables), *([in_words(report.groups)] if report.groups else [])],
        "spent": page.add("spent", spent(report), half=True),
        "limits": page.add("limits", limits(report), half=True),
        "gains": page.add("gains", gains(report), half=True),
        "timeline": report.timeline,
        "ranks": page.table(groups_table(report.groups, report.ranks) if report.groups else report.ranks),
        "overview": [section for section in groups[OVERVIEW] if section.tables],
        "groups": {
            group: shown
            for group in (*groups,)[1:]
            if (shown := [section for section in groups[group] if section.tables]) or group == DETAILS
        },
        "details": DETAILS,
        "empty": absent_tables(
            (report.tables[section.name] for section in sections if not section.tables), report.on_device
        ),
        "notes": report.notes,
        "words": WORDS,
    }


def _scripts() -> list[str]:
    """Returns the page's scripts, the drawing library first."""
    timeline = _text("page.timeline.data.js") + _text("page.timeline.js") + _text("page.choice.js")
    own_scripts = (_text("page.tables.js"), timeline, _text("page.flow.js"), _text("page.js"))
    return [_script(text) for text in (drawing_library(), *own_scripts)]


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # a line does not end between a number and its unit
        finalize=lambda value: UNIT.sub("\u00a0", plain(value)) if type(value) is str else value,
    )
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
    return files(__package__).joinpath(name).read_text("utf-8")


def drawing_library() -> str:
    """Returns a script that gives a page `vegaEmbed`. It is bundled once per version and kept in the user's cache, as
    bundling takes longer than most reports.
    """
    folder = platformdirs.user_cache_path("execgraph")
    for path in folder.glob(f"vega-embed-{VERSION}-*.js"):
        with suppress(OSError):
            content = path.read_bytes()
            # the name has the digest of the content, so a damaged or changed file is not used
            if path.name == _library_name(content):
                return content.decode()
    import vl_convert  # 40 MB that are not needed again

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError, DataError):  # a cache that cannot be written costs a second, not the report
        folder.mkdir(parents=True, exist_ok=True)
        with open_output(str(folder / _library_name(bundle.encode()))) as stream:
            stream.write(bundle.encode())
    return bundle


def _library_name(content: bytes) -> str:
    return f"vega-embed-{VERSION}-{hashlib.blake2b(content, digest_size=16).hexdigest()}.js"
