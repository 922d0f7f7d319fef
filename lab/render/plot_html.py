"""The element a plot is drawn in, with its description beside it."""

from __future__ import annotations

from django.utils.html import json_script
from django.utils.safestring import SafeString

from lab.render.figures import Plot
from lab.render.text import safe, visible_html


def plot_html(plot: Plot) -> SafeString:
    """An empty box that names what it will show, and the JSON that static/js/plot.js draws it from."""
    label = visible_html(f"{plot.title}: {plot.summary}")
    box = (
        f'<div class="plot" id="plot-{plot.key}" data-size="{plot.size}" data-plot="{plot.description_id}" '
        f'data-name="{plot.key}" role="img" aria-label="{label}"></div>'
    )
    return safe(box + json_script(plot.description, plot.description_id))
