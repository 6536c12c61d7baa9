"""The sawtooth as a picture: tokens sent by turn, the lines, and what was done at them."""

from __future__ import annotations

from collections.abc import Sequence

from demo.record import Recording, Turn

WIDTH, HEIGHT = 960, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 100, 44, 48
SIGNS = {"swapped": ("#1a7f37", "summary swapped in"), "truncated": ("#bf8700", "old results cut"),
         "deferred": ("#8250df", "left to the worker"), "dropped": ("#cf222e", "messages dropped")}  # fmt: skip


def svg(run: Recording) -> str:
    """A picture for light and dark pages."""
    turns = run.turns
    last = turns[-1]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Tokens sent by turn: a sawtooth that stays below the window" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#57606a">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="14" fill="#24292f">{len(turns)} turns, {run.raw_tokens:,} tokens of transcript, '
        f"a window of {run.window:,}</text>",
        *_scale(run),
        _line(run, run.window, "window", "#cf222e", ""),
        _line(run, last.trigger, "trigger", "#bf8700", "6 4"),
        _area(run),
        _precompute(run),
        *_signs(run),
        *_legend(turns),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(run: Recording, at: int) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * at / max(1, len(run.turns) - 1), 1)


def _y(run: Recording, tokens: int) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * tokens / run.window, 1)


def _scale(run: Recording) -> list[str]:
    parts = []
    for tokens in range(0, run.window, 16_000):
        y = _y(run, tokens)
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#eaeef2"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{tokens // 1000}{"k" if tokens else ""}</text>'
        )
    y = HEIGHT - BOTTOM + 18
    return parts + [
        f'<text x="{_x(run, at)}" y="{y}" text-anchor="middle">{run.turns[at].number}</text>'
        for at in range(0, len(run.turns), 20)
    ]


def _line(run: Recording, tokens: int, name: str, colour: str, dashes: str) -> str:
    y = _y(run, tokens)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="{colour}"{dashed}/>'
        f'<text x="{WIDTH - RIGHT + 6}" y="{y + 4}" fill="{colour}">{name} {tokens / 1000:.0f}k</text>'
    )


def _path(run: Recording, points: Sequence[tuple[int, int]]) -> str:
    return " ".join(f"{_x(run, at)},{_y(run, tokens)}" for at, tokens in points)


def _area(run: Recording) -> str:
    sent = _path(run, [(at, turn.sent) for at, turn in enumerate(run.turns)])
    floor = _y(run, 0)
    return (
        f'<polygon points="{LEFT},{floor} {sent} {_x(run, len(run.turns) - 1)},{floor}" fill="#54aeff" fill-opacity="0.25"/>'
        f'<polyline points="{sent}" fill="none" stroke="#0969da" stroke-width="1.5"/>'
    )


def _precompute(run: Recording) -> str:
    points = [(at, turn.precompute) for at, turn in enumerate(run.turns) if turn.precompute is not None]
    if not points:
        return ""
    return (
        f'<polyline points="{_path(run, points)}" fill="none" stroke="#8c959f" stroke-dasharray="2 3"/>'
        f'<text x="{WIDTH - RIGHT + 6}" y="{_y(run, points[-1][1]) + 4}">precompute</text>'
    )


def _signs(run: Recording) -> list[str]:
    parts = []
    for at, turn in enumerate(run.turns):
        if turn.action in SIGNS:
            colour = SIGNS[turn.action][0]
            parts.append(f'<circle cx="{_x(run, at)}" cy="{_y(run, turn.sent)}" r="3.5" fill="{colour}"/>')
    return parts


def _legend(turns: Sequence[Turn]) -> list[str]:
    parts, x, y = (
        [f'<text x="{LEFT - 8}" y="{HEIGHT - 10}" text-anchor="end">turn</text>'],
        LEFT + 8,
        HEIGHT - 10,
    )
    for action, (colour, meaning) in SIGNS.items():
        count = sum(turn.action == action for turn in turns)
        if count:
            parts.append(f'<circle cx="{x}" cy="{y - 4}" r="3.5" fill="{colour}"/>')
            parts.append(f'<text x="{x + 9}" y="{y}">{meaning} ({count})</text>')
            x += 40 + 7 * len(meaning) + 20
    return parts
