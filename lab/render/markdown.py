"""Markdown as HTML, for the texts meant as prose: an issue's statement and a final answer."""

from __future__ import annotations

import nh3
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt

from lab.render.text import safe, visible_html, visible_text

_LIMIT = 60_000
_TAGS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
_markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def render_markdown(text: str) -> SafeString:
    """`text` as safe HTML: no scripts, pictures or styles; links lead out without a referrer.

    Text that is no prose any more (over 60,000 characters) stays as it was written.
    """
    if len(text) > _LIMIT:
        return safe(f'<pre class="long">{visible_html(text)}</pre>')
    rendered = _markdown.render(visible_text(text))
    return safe(
        nh3.clean(
            rendered,
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
        )
    )
