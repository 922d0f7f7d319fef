"""Descriptions of plots: what they hold is drawn as it is written."""

from __future__ import annotations

import html
import json

import pytest

from lab.render import figures
from lab.render.figures import Plot

NAMES = ['<a href="//elsewhere.example">leaf</a>', "a <b> model", "&lt;i&gt; &amp; co", "@ink", "%{x} 50 %"]


@pytest.mark.parametrize("name", NAMES)
def test_a_text_of_a_plot_holds_no_tag_and_no_colour_and_reads_as_it_was_written(name: str) -> None:
    plot = Plot(
        key="k",
        title="T",
        subtitle="S",
        summary="",
        data=[{"name": name, "text": [name], "hovertext": [name], "marker": {"color": "@plot-1"}}],
        layout={
            "yaxis": {"ticktext": [name], "title": {"text": name}},
            "annotations": [{"text": name, "font": {"color": "@ink"}}],
        },
        image={},
    )
    described = plot.description
    (trace,), layout = described["data"], described["layout"]
    (note,) = layout["annotations"]
    texts = [trace["name"], *trace["text"], *trace["hovertext"], *layout["yaxis"]["ticktext"]]
    texts += [layout["yaxis"]["title"]["text"], note["text"]]
    assert {html.unescape(text) for text in texts} == {name}
    assert not any("<" in text or ">" in text or text.startswith("@") for text in texts)
    assert trace["marker"]["color"] == "@plot-1"
    assert note["font"]["color"] == "@ink"


def test_words_without_markup_stay_as_they_are() -> None:
    assert figures.plain_text("scripted/solver × birch, 60.0 %") == "scripted/solver × birch, 60.0 %"
    assert json.dumps(figures.plain_text("a@b")) == '"a@b"'
