#!/usr/bin/env python3
"""Draws the decode rows of `rkv bench -o json` against the bandwidth line, as SVG on standard output.

  rkv bench -p 0 -d 1024,4096,8000 --fill random -o json > speed.json
  bench/plot_roofline.py speed.json > speed.svg

Across: bytes a token reads (weights, keys and values). Up: tokens a second; a bar spans the repetitions.
The line is what the stream-read probe would reach; the distance to it is what an engine leaves unused.
"""
import argparse
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 560
LEFT, RIGHT, TOP, BOTTOM = 80, 250, 50, 70
# Okabe and Ito: told apart with any colour vision; shapes differ too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("circle", "square", "diamond", "triangle", "cross")


def name_of(row):
    kv = "" if row["setting"].startswith(row["kv"]) else row["kv"]
    return " ".join(part for part in (row["engine"], row["setting"], kv) if part)


def points_of(report):
    """Decode rows with a traffic: name, test, bytes, median, min, max, depth."""
    points = []
    for row in report["rows"]:
        if row.get("gb_per_second") is None or row.get("skipped"):
            continue
        speed = row["tokens_per_second"]
        size = row["weight_bytes_per_token"] + row["kv_bytes_per_token"]
        points.append((name_of(row), f"{row['test']}, {row['threads']} threads", size,
                       speed["median"], speed["min"], speed["max"], row["depth"]))
    return points


def bandwidths_of(report):
    """(GB/s, label) lines: each team's read of memory."""
    return [(team["probe_gb_per_second"]["median"],
             f"{team['probe_gb_per_second']['median']:.1f} GB/s, {team['threads']} threads")
            for team in report["header"]["teams"] if team["probe_gb_per_second"]["median"] > 0]


class Scale:
    """Logarithmic, from values to pixels."""

    def __init__(self, low, high, first, last):
        self.low, self.high = math.log10(low), math.log10(high)
        self.first, self.last = first, last

    def __call__(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self):
        """1, 2 and 5 of each power of ten; more of them where there is less than one power."""
        steps = (1, 2, 5) if self.high - self.low > 1 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        for power in range(math.floor(self.low), math.ceil(self.high) + 1):
            for step in steps:
                if self.low <= math.log10(step * 10.0**power) <= self.high:
                    yield step * 10.0**power


def marker(shape, x, y, colour):
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'
    if shape == "cross":
        return (f'<path d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10" stroke="{colour}" '
                'stroke-width="2.5"/>')
    corners = {"square": [(-5, -5), (5, -5), (5, 5), (-5, 5)],
               "diamond": [(0, -7), (7, 0), (0, 7), (-7, 0)],
               "triangle": [(0, -6), (6, 5), (-6, 5)]}[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{path}" fill="{colour}"/>'


def text(x, y, content, anchor="start", size=12, extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>'
            f'{escape(content)}</text>')


def axes(across, up):
    parts = []
    for value in across.ticks():
        x = across(value)
        parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(text(x, HEIGHT - BOTTOM + 18, f"{value / 1e6:g}", "middle"))
    for value in up.ticks():
        y = up(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, f"{value:g}", "end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 28, "MB read per token", "middle", 13))
    parts.append(text(22, middle, "tokens per second", "middle", 13,
                      f'transform="rotate(-90 22 {middle:.1f})"'))
    return parts


def lines(bandwidths, across, up):
    """The bandwidth lines, cut at the frame by a clip path."""
    low, high = 10**across.low, 10**across.high
    parts = []
    for rate, label in bandwidths:
        parts.append(f'<path d="M{across(low):.1f} {up(rate * 1e9 / low):.1f}L{across(high):.1f} '
                     f'{up(rate * 1e9 / high):.1f}" stroke="#444" stroke-width="1.5" '
                     'stroke-dasharray="7 4" fill="none" clip-path="url(#frame)"/>')
        # The label sits where the line is in the frame, a little above it.
        at = max(low, rate * 1e9 / 10**up.high) * 1.1
        parts.append(text(across(at) + 10, up(rate * 1e9 / at) - 4, label, "start", 11,
                          'fill="#444"'))
    return parts


def draw(report):
    points, bandwidths = points_of(report), bandwidths_of(report)
    if not points:
        sys.exit("plot_roofline: no decode row with a traffic in this file")
    sizes = [p[2] for p in points]
    speeds = [s for p in points for s in (p[4], p[5])]
    speeds += [rate * 1e9 / size for rate, _ in bandwidths for size in (min(sizes), max(sizes))]
    across = Scale(min(sizes) / 1.3, max(sizes) * 1.3, LEFT, WIDTH - RIGHT)
    up = Scale(max(min(speeds), max(speeds) / 1e4) / 1.3, max(speeds) * 1.3, HEIGHT - BOTTOM, TOP)
    header = report["header"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<clipPath id="frame"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - RIGHT - LEFT}" '
        f'height="{HEIGHT - BOTTOM - TOP}"/></clipPath>',
        text(LEFT, 24, f"{header['model'].rsplit('/', 1)[-1]} on {header['cpu']}", "start", 15)]
    parts += axes(across, up) + lines(bandwidths, across, up)
    names = list(dict.fromkeys(p[0] for p in points))
    for name, test, size, median, low, high, depth in points:
        i = names.index(name)
        colour, shape = COLOURS[i % len(COLOURS)], SHAPES[i % len(SHAPES)]
        x = across(size)
        parts.append(f'<g><title>{escape(f"{name}, {test}: {median:.2f} tok/s")}</title>'
                     f'<path d="M{x:.1f} {up(high):.1f}V{up(low):.1f}" stroke="{colour}" '
                     f'clip-path="url(#frame)"/>{marker(shape, x, up(median), colour)}</g>')
        if i == 0 and depth:  # the first series tells the depths; the others lie left of it
            parts.append(text(x + 10, up(median) + 4, f"d{depth}", "start", 11))
    for i, name in enumerate(names):
        y = TOP + 14 + 22 * i
        parts.append(marker(SHAPES[i % len(SHAPES)], WIDTH - RIGHT + 20, y - 4,
                            COLOURS[i % len(COLOURS)]))
        parts.append(text(WIDTH - RIGHT + 34, y, name[:34]))
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=argparse.FileType(), default=sys.stdin)
    print(draw(json.load(parser.parse_args().file)), end="")


if __name__ == "__main__":
    main()
