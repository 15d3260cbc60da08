# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The results of measure.sh: reading them, and numbers for people."""

import json
import statistics


class Figure(float):
    """A result, or what was made of results, and whether the machine was busy with
    something else when one of them was measured."""

    def __new__(cls, value, busy=False):
        figure = super().__new__(cls, value)
        figure.busy = busy
        return figure

    def _made_with(self, other, value):
        return Figure(value, self.busy or is_busy(other))

    def __sub__(self, other):
        return self._made_with(other, float(self) - float(other))

    def __truediv__(self, other):
        return self._made_with(other, float(self) / float(other))


def is_busy(value):
    return getattr(value, "busy", False)


class Results:
    """Look-up by test, device and size; what failed is not there."""

    def __init__(self, path):
        self.values = {}
        self.raws = []
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                self._add(json.loads(line))

    def _add(self, row):
        if row["value"] is None:
            return
        if row["test"] == "raw":
            self.raws.append(row["value"])
        key = (row["test"], row["device"], row["size"])
        self.values[key] = Figure(row["value"], row.get("busy", False))

    def get(self, test, device, size):
        return self.values.get((test, device, size))

    def series(self, test, device):
        """The (size, value) pairs of a test, by size."""
        return sorted((size, value)
                      for (t, d, size), value in self.values.items()
                      if (t, d) == (test, device))

    def sizes(self, suffix):
        """The sizes that any test with a name like this was run with."""
        return sorted({size for test, _, size in self.values
                       if test.endswith(suffix)})

    def raw(self):
        """Half a round trip of a cache line, as it mostly is."""
        return statistics.median(self.raws) if self.raws else None


def ratio(a, b):
    return a / b if a is not None and b else None


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


BUSY = "*"


def number_text(value):
    """Three digits that count, and a mark if the machine was busy."""
    if value is None:
        return "-"
    mark = BUSY if is_busy(value) else ""
    if value >= 100:
        return f"{value:.0f}{mark}"
    if value >= 10:
        return f"{value:.1f}{mark}"
    if value >= 0.1:
        return f"{value:.2f}{mark}"
    return f"{value:.3g}{mark}"
