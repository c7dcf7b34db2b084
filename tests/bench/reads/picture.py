"""The cost curves as a picture (a small plot for each thing that varies) and as a table: reads/s over its value."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["draw", "table"]

_WIDTH, _HEIGHT = 230, 190  # of one plot, pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 12, 30, 34
_LINES = ("#1f5fa8", "#c8511b", "#3c8a3f", "#7a4fa3")
_TITLES = {
    "slots": "slots (canvas 64)",
    "options": "options (one slot)",
    "prefix": "prefix, tokens",
    "record": "record, tokens",
    "in_flight": "reads in flight",
}


def draw(curves: Mapping[str, Mapping[str, Any]], caption: str) -> str:
    """An SVG.

    Args:
        curves: engine name -> its row `curves`: for each axis a list of {axis: value, "reads_s": ...}.
        caption: what was measured, on what, when.
    """
    axes = [axis for axis in _TITLES if any(its.get(axis) for its in curves.values())]
    plots = [_plot(axis, {name: its.get(axis, []) for name, its in curves.items()}) for axis in axes]
    legend = "".join(
        f'<text x="{_LEFT + 130 * at}" y="18" fill="{_LINES[at % len(_LINES)]}">{escape(name)}</text>'
        for at, name in enumerate(curves)
    )
    body = "".join(f'<g transform="translate({_WIDTH * at},24)">{plot}</g>' for at, plot in enumerate(plots))
    width, height = _WIDTH * max(1, len(plots)), _HEIGHT + 48
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="10"><rect width="{width}" height="{height}" fill="white"/>{legend}{body}'
        f'<text x="{_LEFT}" y="{height - 8}" fill="#555">{escape(caption)}</text></svg>\n'
    )


def table(curves: Mapping[str, Mapping[str, Any]], caption: str) -> str:
    """The same points in Markdown, with the p50 of a read."""
    lines = [caption, "", "| engine | what varies | value | reads/s | p50, ms |", "|---|---|---|---|---|"]
    for name, its in curves.items():
        for axis, title in _TITLES.items():
            lines += [
                f"| {name} | {title} | {point[axis]} | {point['reads_s']:.0f} | {point['p50_ms']:.0f} |"
                for point in its.get(axis, [])
            ]
    return "\n".join(lines) + "\n"


def _plot(axis: str, lines: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    values = sorted({point[axis] for points in lines.values() for point in points})
    top = max((point["reads_s"] for points in lines.values() for point in points), default=1.0) * 1.1
    across = (_WIDTH - _LEFT - _RIGHT) / max(1, len(values) - 1)

    def place(point: Mapping[str, float]) -> tuple[float, float]:
        # Values stand at equal distances: they grow by factors, and 0 has no logarithm.
        x = _LEFT + across * values.index(point[axis])
        return x, _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * point["reads_s"] / top

    parts = [
        f'<text x="{_LEFT}" y="{_TOP - 10}" font-weight="bold">{escape(_TITLES[axis])}</text>',
        f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{_LEFT - 4}" y="{_HEIGHT - _BOTTOM}" text-anchor="end">0</text>',
        f'<text x="{_LEFT - 4}" y="{_TOP + 4}" text-anchor="end">{top:.0f}</text>',
    ]
    for at, value in enumerate(values):
        x = _LEFT + across * at
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="middle">{value:g}</text>')
    for at, points in enumerate(lines.values()):
        colour = _LINES[at % len(_LINES)]
        placed = [place(point) for point in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in placed]
    return "".join(parts)
