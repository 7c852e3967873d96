"""A small chart of how many there were each day, drawn as SVG: no script, no style attribute, the figures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

BAR, GAP, HEIGHT = 5, 2, 20  # pixels
LEAST = 2  # pixels: one of many is seen too


def trend_chart(*, days: Sequence[tuple[date, int]]) -> SafeString:
    """`days`: oldest first."""
    most = max((count for _, count in days), default=0)
    bars = format_html_join(
        "",
        '<rect x="{}" y="{}" width="{}" height="{}"{}><title>{}</title></rect>',
        (
            (
                number * (BAR + GAP),
                HEIGHT - height,
                BAR,
                height,
                SafeString("") if count else SafeString(' class="ca-trend-none"'),
                f"{day:%d %b}: {count:,}",
            )
            for number, (day, count) in enumerate(days)
            for height in [_height(count, most)]
        ),
    )
    told = ", ".join(f"{day:%d %b} {count:,}" for day, count in days if count) or "none"
    return format_html(
        '<svg class="ca-trend" role="img" aria-label="Each day: {}" width="{}" height="{}">{}</svg>',
        told,
        len(days) * (BAR + GAP) - GAP,
        HEIGHT,
        bars,
    )


def _height(count: int, most: int) -> int:
    return max(round(HEIGHT * count / most), LEAST) if count else LEAST
