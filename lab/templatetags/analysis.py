"""Template filters of the analysis: its tables and plots as HTML."""

from __future__ import annotations

from django import template

from lab.render import plot_html as plots
from lab.render.figures import Plot
from lab.render.table_html import table_html as html_of_table
from lab.render.tables import Table
from lab.web.analysis_parts import Panel

register = template.Library()


@register.filter
def table_html(table: Table) -> str:
    return html_of_table(table)


@register.filter
def plot_html(plot: Plot) -> str:
    return plots.plot_html(plot)


@register.filter
def joined_html(panel: Panel) -> str:
    """The panel's table with its plot in the rows."""
    if panel.table is None or not panel.table.rows:
        return ""
    return html_of_table(panel.table, plots.plot_html(panel.plots[0]) if panel.plots else "")
