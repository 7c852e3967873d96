"""Markdown to HTML that may stand in our pages: parsed without raw HTML, then sanitised again."""

from __future__ import annotations

import hashlib

import nh3
from django.core.cache import cache
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from compaction_app.admin.rendering.text import visible, without_escapes

MOST_CHARS = 30_000  # beyond, parsing costs more than the formatting is worth: such text is shown as it is
CACHED_FROM = 500  # characters; shorter text is parsed faster than it is fetched
CACHE_SECONDS = 24 * 3600
_VERSION = "md1"  # part of the cache key: change it with anything below

# Images are left out: their address would be a request to somebody else's server.
_parser = MarkdownIt("js-default", {"html": False, "breaks": True, "linkify": False}).disable("image")
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
_SCHEMES = {"http", "https", "mailto"}


def markdown_html(text: str) -> SafeString:
    """Safe HTML for Markdown of unknown origin. Cached by its digest."""
    shown = visible(without_escapes(text))
    if len(shown) < CACHED_FROM:
        return _render(shown)
    key = f"{_VERSION}:{hashlib.sha256(shown.encode()).hexdigest()}"
    html = cache.get(key)
    if html is None:
        html = str(_render(shown))
        cache.set(key, html, CACHE_SECONDS)
    return mark_safe(html)  # noqa: S308  what _render gave


def _render(text: str) -> SafeString:
    html = nh3.clean(
        _parser.render(text),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(html)  # noqa: S308  sanitised just now
