"""The experiment on one page: curves, table, sessions, and where the numbers come from.

`page` is an HTML file that needs nothing beside it, `draw` a picture for the documentation. Knows only run
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from io import StringIO
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openclaw_rl.evals.personalise import table
from openclaw_rl.evals.personalise.conversations import MOST_SESSIONS
from openclaw_rl.evals.personalise.personas import PERSONAS
from openclaw_rl.evals.personalise.run_file import RunFile
from openclaw_rl.evals.personalise.table import Row

COLOURS = {
    "memory": "#5f6368",
    "hybrid": "#b3261e",
    "combined": "#e37400",
    "binary": "#1a73e8",
    "opd": "#188038",
    "sft": "#9334e6",
    "hybrid_own_hints": "#f28b82",
}

BESIDE = 0.12
"""Updates between the points of two methods, so that their intervals do not hide each other."""

ORIGIN = ("commit", "processor", "cores", "at")

_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}"
    "td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}"
)

_MEANINGS = (
    "The 95 % interval is Student's t over seeds, or Wilson's over the questions of a single run. style and "
    "useful are the two halves of pleasing. told base: mean log-prob per token of the replies under the base "
    "that is told the wish. drift: KL divergence to the base, per token, on unrelated prompts. words: of a "
    "reply. turns: of the user, until then. seconds: from the start of the run, talk and updates together."
)


def draw(runs: Sequence[RunFile], path: Path) -> None:
    """Write the curves; the suffix of `path` (.png, .svg) chooses the format."""
    curves(table.rows(runs)).savefig(path)


def page(runs: Sequence[RunFile], path: Path) -> None:
    """Write the report."""
    rows = table.rows(runs)
    drawn = StringIO()
    curves(rows).savefig(drawn, format="svg")
    svg = drawn.getvalue()
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>personalise</title>",
        f"<style>{_STYLE}</style><h1>openclaw-rl bench personalise</h1>",
        "<p>Share of held-out first replies that please: the style of the persona, and an answer.</p>",
        svg[svg.index("<svg") :],
        "<ul>",
        *(
            f"<li><b>{name}</b>: {escape(PERSONAS[name].likes)}</li>"
            for name in dict.fromkeys(row.persona for row in rows)
        ),
        "</ul>",
        f"<p>{escape(_MEANINGS)}</p>",
        _html(
            tuple(table.COLUMNS),
            [[shown(row) for shown in table.COLUMNS.values()] for row in rows],
        ),
        "<h2>Sessions until three first replies in a row pleased</h2>",
        _html(
            ("persona", "method", "sessions", "runs that got there", "runs"),
            [
                (one.persona, one.method, f"{one.mean:.1f}", str(one.reached), str(one.seeds))
                for one in table.sessions(runs, MOST_SESSIONS)
            ],
        ),
        "<h2>Where it comes from</h2>",
        _html(
            ("persona", "method", "seed", *ORIGIN),
            [(run.persona, run.method, str(run.seed), *_origin(run)) for run in runs],
        ),
        "</html>",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def curves(rows: Sequence[Row]) -> Figure:
    """A panel for each persona, with the same methods in the same colours."""
    there = {row.persona for row in rows}
    personas = [name for name in PERSONAS if name in there] or ["nobody"]
    figure = Figure(figsize=(4.2 * len(personas), 4.2), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(personas), sharey=True, squeeze=False)[0]
    for panel, persona in zip(panels, personas, strict=True):
        _fill(panel, [row for row in rows if row.persona == persona])
        panel.set_title(persona, fontsize=10)
        panel.set_xlabel("updates of 16 turns")
        panel.set_xticks(sorted({row.updates for row in rows}))
        panel.set_ylim(-0.02, 1.02)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("held-out first replies that please")
    shown: dict[str, Artist] = {}
    for panel in panels:
        lines, names = panel.get_legend_handles_labels()
        shown |= dict(zip(names, lines, strict=True))
    if shown:
        figure.legend(
            shown.values(),
            shown,
            loc="outside lower center",
            ncols=min(len(shown), 2 * len(personas)),
            frameon=False,
        )
    return figure


def _fill(panel: Axes, rows: Sequence[Row]) -> None:
    """One persona's: every method starts where the base is, and stands a little beside the others."""
    starts = [row for row in rows if row.method == "base"]
    for place, (method, colour) in enumerate(COLOURS.items()):
        of_method = [row for row in rows if row.method == method]
        if not of_method:
            continue
        curve = [*starts, *of_method]
        beside = BESIDE * (place - (len(COLOURS) - 1) / 2)
        at, mean = [row.updates + beside for row in curve], [row.mean for row in curve]
        below = [max(0.0, row.mean - row.low) if row.seeds > 1 else 0.0 for row in curve]
        above = [max(0.0, row.high - row.mean) if row.seeds > 1 else 0.0 for row in curve]
        panel.errorbar(
            at, mean, (below, above), fmt="o-", color=colour, lw=1.6, ms=4, elinewidth=0.9, label=method
        )
    for row in rows:
        if row.method == "hinted":
            panel.axhline(row.mean, color="#202124", lw=1, ls=":", label="the base, told")


def _origin(run: RunFile) -> tuple[str, ...]:
    return tuple(str(run.provenance.get(key, "")) for key in ORIGIN)


def _html(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return "\n".join([*lines, "</table>"])
