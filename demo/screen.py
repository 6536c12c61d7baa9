"""The sawtooth while it grows: a chart that is redrawn on a terminal, one line a turn where there is none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from demo.checks import Check
from demo.record import Recording, Turn

HEIGHT = 14  # rows of the chart
EVENTS = 4  # latest turns in which something was done
BAR = 40  # cells of a bar in plain lines
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LEFT = 7  # cells before the chart
COLOURS = {"nothing": "34", "truncated": "33", "swapped": "32", "deferred": "35", "dropped": "31"}

Paint = Callable[[str, str], str]


def plain(text: str, colour: str) -> str:
    """The text as it is."""
    return text


def coloured(text: str, colour: str) -> str:
    """The text in an ANSI colour."""
    return f"\x1b[{colour}m{text}\x1b[0m" if text else text


def bar(turn: Turn, window: int, cells: int = BAR) -> str:
    """Tokens sent on the scale of the window, with `:` at the precompute line and `|` at the trigger."""
    full = min(cells, round(turn.sent * cells / window))
    scale = ["█"] * full + ["·"] * (cells - full)
    for line, sign in ((turn.precompute, ":"), (turn.trigger, "|")):
        if line is not None:
            scale[min(cells - 1, line * cells // window)] = sign
    return "".join(scale)


def line(turn: Turn, total: int, window: int, paint: Paint = plain) -> str:
    """A turn in one line: number, bar, tokens sent, action, time of the build."""
    waited = f"  waited {turn.waited_ms:.0f} ms" if turn.waited_ms > 1 else ""
    action = paint(f"{turn.action:<9}", COLOURS[turn.action])
    fault = f"  INVALID: {turn.fault}" if turn.fault else ""
    shown = paint(bar(turn, window), COLOURS[turn.action])
    return (
        f"{turn.number:>4}/{total}  {shown} {turn.sent:>7,}  {action} {turn.build_ms:>4.0f} ms{waited}{fault}"
    )


def progress(done: int, total: int, cells: int) -> str:
    """A bar of what is done."""
    full = done * cells // max(1, total)
    return "█" * full + "░" * (cells - full)


def chart(turns: Sequence[Turn], total: int, window: int, width: int, paint: Paint = plain) -> list[str]:
    """The sawtooth: a column a turn (or the highest of several), tokens sent upwards, lines of the last turn."""
    per = -(-total // max(1, width))
    groups = [turns[at : at + per] for at in range(0, len(turns), per)]
    columns = [max(group, key=lambda t: (t.action != "nothing", t.sent)) for group in groups]
    heights = [max(t.sent for t in group) * HEIGHT * 8 // window for group in groups]
    marks = _marks(turns[-1], window) if turns else {}
    wide = -(-total // per)
    rows = []
    for row in reversed(range(HEIGHT)):
        name, sign, style = marks.get(row, ("", " ", "90"))
        cells = [
            paint(_EIGHTHS[min(8, max(0, height - row * 8))], COLOURS[column.action])
            if height > row * 8
            else paint(sign, style)
            for height, column in zip(heights, columns, strict=True)
        ]
        cells += [paint(sign, style)] * (wide - len(cells))
        rows.append(f"{name:>{_LEFT - 2}} ┤{''.join(cells)}")
    return rows


def _marks(turn: Turn, window: int) -> dict[int, tuple[str, str, str]]:
    """Row → (label, sign, colour) of the lines: precompute, trigger, window."""
    rows = {}
    for at, sign, style in ((turn.precompute, "·", "90"), (turn.trigger, "─", "33"), (window, "═", "31")):
        if at is not None:
            rows[min(HEIGHT - 1, (at * HEIGHT - 1) // window)] = (f"{at / 1000:.0f}k", sign, style)
    return rows


class Screen:
    """Where the run is drawn. Redraws in place on a terminal wide and high enough, else one line a turn."""

    def __init__(self, total: int, out: TextIO = sys.stdout) -> None:
        size = shutil.get_terminal_size((80, 24))
        terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        self._out, self._total, self._width = out, total, size.columns
        self._redraws = terminal and size.columns >= 60 and size.lines >= HEIGHT + EVENTS + 6
        self._paint: Paint = coloured if terminal and "NO_COLOR" not in os.environ else plain
        self._drawn = 0
        self._events: list[str] = []

    def say(self, text: str = "") -> None:
        print(text, file=self._out, flush=True)

    def turn(self, turn: Turn, run: Recording) -> None:
        """Shows the run up to this turn."""
        if not self._redraws:
            self.say(line(turn, self._total, run.window, self._paint))
            return
        if turn.action != "nothing":
            before = run.turns[-2].sent if len(run.turns) > 1 else 0
            action = self._paint(f"{turn.action:<9}", COLOURS[turn.action])
            event = f"  turn {turn.number:>3}  {action}  {before:>6,} → {turn.sent:>6,} tokens, built in {turn.build_ms:.0f} ms"
            self._events = [*self._events, event][-EVENTS:]
        width = min(self._width - _LEFT - 1, self._total)
        rows = chart(run.turns, self._total, run.window, width, self._paint)
        rows.append("")
        rows.append(
            f"  turn {turn.number:>3}/{self._total} {progress(turn.number, self._total, 20)} "
            f" sent {turn.sent:>6,} of {run.raw_tokens:>7,} raw  build {turn.build_ms:>3.0f} ms"
        )
        rows += [*self._events, *[""] * (EVENTS - len(self._events))]
        back = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._out.write(back + "".join(f"\x1b[2K{row}\n" for row in rows))
        self._out.flush()
        self._drawn = len(rows)

    def check(self, check: Check) -> None:
        """Shows one check."""
        sign = self._paint("✓", "32") if check.holds else self._paint("✗", "31")
        self.say(f" {sign} {check.name:<19} {check.found}")
