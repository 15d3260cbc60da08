#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Draw the results of measure.sh: throughput.svg and latency.svg.

usage: plot.py DIRECTORY

The results are DIRECTORY/results.json, the drawings go beside them.
"""

import math
import os
import sys
from html import escape

from results import Results, is_busy, size_text

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 50, 60

# One colour for each device, one dash pattern for each operation.
COLOURS = {"mic": "#0b6e99", "mic-engine": "#6fb3d2", "mic-poll": "#3f8f5b",
           "rxe": "#c2452d", "tcp": "#7a7a7a", "memcpy": "#111111",
           "raw": "#111111"}
DASHES = {"write": "", "read": "7 4", "send": "2 3", "atomic": "9 3 2 3",
          "": ""}


class Chart:
    """Lines over message size; both axes are logarithmic."""

    def __init__(self, title, unit):
        self.title = title
        self.unit = unit
        self.lines = []
        self.level = None

    def add(self, label, device, operation, points):
        points = [(x, y) for x, y in points if y > 0]
        if points:
            self.lines.append((label, device, operation, points))

    def add_level(self, label, value):
        """A horizontal line."""
        if value:
            self.level = (label, value)

    def _scale(self):
        xs = [x for line in self.lines for x, _ in line[3]]
        ys = [y for line in self.lines for _, y in line[3]]
        if self.level:
            ys.append(self.level[1])
        self.x0, self.x1 = math.log2(min(xs)), math.log2(max(xs))
        if self.x0 == self.x1:
            self.x0, self.x1 = self.x0 - 1, self.x1 + 1
        self.y0 = math.floor(math.log10(min(ys)))
        self.y1 = max(math.ceil(math.log10(max(ys))), self.y0 + 1)

    def _x(self, value):
        part = (math.log2(value) - self.x0) / (self.x1 - self.x0)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def _y(self, value):
        part = (math.log10(value) - self.y0) / (self.y1 - self.y0)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def _grid(self):
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        for power in range(self.y0, self.y1 + 1):
            y = self._y(10 ** power)
            yield (f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}"'
                   f' y2="{y:.1f}" class="grid"/>')
            yield (f'<text x="{LEFT - 8}" y="{y + 4:.1f}"'
                   f' text-anchor="end">{10 ** power:g}</text>')
        for size in sorted({x for line in self.lines for x, _ in line[3]}):
            x = self._x(size)
            yield (f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}"'
                   f' y2="{bottom}" class="grid"/>')
            yield (f'<text x="{x:.1f}" y="{bottom + 18}"'
                   f' text-anchor="middle">{size_text(size)}</text>')
        yield (f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 14}"'
               ' text-anchor="middle">message size</text>')
        yield f'<text x="{LEFT - 8}" y="{TOP - 12}" text-anchor="end">' \
              f'{escape(self.unit)}</text>'

    def _curves(self):
        for _, device, operation, points in self.lines:
            style = (f'stroke="{COLOURS[device]}"'
                     f' stroke-dasharray="{DASHES[operation]}"')
            path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}"
                            for x, y in points)
            yield f'<polyline points="{path}" class="curve" {style}/>'
            for x, y in points:
                fill = "#fff" if is_busy(y) else COLOURS[device]
                yield (f'<circle cx="{self._x(x):.1f}" cy="{self._y(y):.1f}"'
                       f' r="2.5" fill="{fill}" stroke="{COLOURS[device]}"/>')
        if self.level:
            y = self._y(self.level[1])
            yield (f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}"'
                   f' y2="{y:.1f}" class="level"/>')

    def _legend(self):
        x, y = WIDTH - RIGHT + 16, TOP + 8
        for label, device, operation, _ in self.lines:
            yield (f'<line x1="{x}" y1="{y}" x2="{x + 34}" y2="{y}"'
                   f' class="curve" stroke="{COLOURS[device]}"'
                   f' stroke-dasharray="{DASHES[operation]}"/>')
            yield f'<text x="{x + 42}" y="{y + 4}">{escape(label)}</text>'
            y += 22
        if self.level:
            yield (f'<line x1="{x}" y1="{y}" x2="{x + 34}" y2="{y}"'
                   ' class="level"/>')
            yield (f'<text x="{x + 42}" y="{y + 4}">'
                   f'{escape(self.level[0])}</text>')
            y += 22
        if any(is_busy(y) for line in self.lines for _, y in line[3]):
            yield f'<text x="{x}" y="{y + 4}">hollow: machine busy</text>'

    def svg(self):
        self._scale()
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}"'
            f' height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
            "<style>text{font:12px sans-serif;fill:#222}"
            ".title{font-size:16px}.grid{stroke:#ddd}"
            ".curve{fill:none;stroke-width:2}"
            ".level{stroke:#111;stroke-width:1.5;stroke-dasharray:1 4}"
            "</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            f'<text x="{LEFT}" y="20" class="title">'
            f'{escape(self.title)}</text>']
        parts += [*self._grid(), *self._curves(), *self._legend(), "</svg>"]
        return "\n".join(parts) + "\n"

    def write(self, path):
        """Write the file; without anything to draw there is none."""
        if not self.lines:
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg())
        print(path)


def add_devices(chart, results, operations, suffix):
    for device in ("mic", "mic-engine", "mic-poll", "rxe"):
        for operation in operations:
            chart.add(f"{device} {operation}", device, operation,
                      results.series(f"ib_{operation}_{suffix}", device))


def draw(results, directory):
    chart = Chart("Throughput of one connection", "MiB/s")
    chart.add("memcpy", "memcpy", "", results.series("memcpy_bw", "memcpy"))
    add_devices(chart, results, ("write", "read", "send"), "bw")
    chart.add("TCP", "tcp", "", results.series("tcp_bw", "tcp"))
    chart.write(os.path.join(directory, "throughput.svg"))

    chart = Chart("Latency: half a round trip; read, atomic: a whole one",
                  "us")
    add_devices(chart, results, ("write", "send", "read", "atomic"), "lat")
    chart.add("TCP", "tcp", "", results.series("tcp_lat", "tcp"))
    chart.add_level("raw cache line", results.raw())
    chart.write(os.path.join(directory, "latency.svg"))


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    draw(Results(os.path.join(arguments[0], "results.json")), arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
