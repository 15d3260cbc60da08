#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
"""Draw what bench/scif.sh measured: SCIF on mic and on rxe, TCP and memcpy.

usage: scif_chart.py RESULTS [FOLDER]

RESULTS has lines "LABEL WHAT BYTES VALUE", "about WHAT TEXT" and "failed WHAT: WHY".
Prints the chart and the ratios as text, with what is aimed at; the drawing goes
beside RESULTS, as .svg. With FOLDER, both go there instead, as scif-figures.md and
scif.svg. Ends with 1 if something failed, or has an aim and was not measured.
"""

import collections
import json
import os
import subprocess
import sys

from results import size_text

# What differs by no more than that may be the same.
TOLERANCE = 0.05
CURVES = [("memcpy_MBps", None, "memcpy_MBps"),
          ("mic writeto_MBps", "mic", "writeto_MBps"),
          ("mic readfrom_MBps", "mic", "readfrom_MBps"),
          ("TCP_MBps", "tcp", "tcp_bw"),
          ("rxe writeto_MBps", "rxe", "writeto_MBps"),
          ("rxe readfrom_MBps", "rxe", "readfrom_MBps")]
SCIF_PERF = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                         "../build/user/bin/scif-perf")


class Run:
    """The values by (label, what) and size, all of the raw round trips, and what
    is said about the run."""

    def __init__(self, path):
        self.series = collections.defaultdict(dict)
        self.raws = []
        self.about = {}
        self.failures = []
        with open(path, encoding="utf-8") as file:
            for line in file:
                self._add(line.strip(), line.split())

    def _add(self, line, words):
        if words[:1] == ["about"]:
            self.about[words[1]] = " ".join(words[2:])
        elif words[:1] == ["failed"]:
            self.failures.append(line[len("failed "):])
        elif "{" in line:  # bench-tcp's JSON, in MiB/s
            result = json.loads(line[line.index("{"):])
            factor = 1.048576 if result["unit"] == "MiB/s" else 1
            self.series[words[0], result["test"]][int(result["size"])] = \
                float(result["value"]) * factor
        elif len(words) == 4:
            if words[1] == "raw_rtt_us":
                self.raws.append(float(words[3]))
            self.series[words[0], words[1]][int(words[2])] = float(words[3])

    def get(self, label, what, size):
        return self.series[label, what].get(size)

    def best(self, what):
        """The best of all labels, by size."""
        values = {}
        for (_, name), series in list(self.series.items()):
            for size, value in series.items():
                if name == what:
                    values[size] = max(value, values.get(size, 0))
        return values

    def curve(self, label, what):
        return self.series[label, what] if label else self.best(what)


def chart_lines(run, svg):
    """The bars that scif-perf prints, which also draws."""
    results = [f"{name} {size} {value}"
               for name, label, what in CURVES
               for size, value in sorted(run.curve(label, what).items())]
    if not results:
        return ["no throughput was measured"]
    chart = subprocess.run([SCIF_PERF, "chart", svg], check=True, text=True,
                           input="\n".join(results) + "\n",
                           stdout=subprocess.PIPE)
    return chart.stdout.splitlines()


def short(value):
    """Three digits, or all that are before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


class Ratio:
    """A value, what it is compared with, what is aimed at, and why the two cannot be
    compared if so."""

    def __init__(self, name, value, base, most=None, least=None, doubt=""):
        self.name = name
        self.value = value
        self.base = base
        self.most = most
        self.least = least
        self.doubt = doubt

    def known(self):
        return bool(self.value and self.base)

    def missing(self):
        return bool(self.aim() and not self.known())

    def aim(self):
        if self.most is not None:
            return f"<= {self.most}"
        return "" if self.least is None else f">= {self.least}"

    def verdict(self):
        if not self.aim():
            return ""
        if not self.known():
            return "not measured"
        if self.doubt:
            return f"no verdict: {self.doubt}"
        ratio = self.value / self.base
        if self.most is not None:
            return "met" if ratio <= self.most else "MISSED"
        return "met" if ratio >= self.least else "MISSED"

    def text(self):
        aim = f", aim {self.aim()}: {self.verdict()}" if self.aim() else ""
        if not self.known():
            return self.name + aim
        return (f"{self.name}: {self.value:.3f} / {self.base:.3f} = "
                f"{self.value / self.base:.3f}{aim}")

    def row(self):
        figures = [short(value) if value else "-"
                   for value in (self.value, self.base,
                                 self.known() and self.value / self.base)]
        return "| " + " | ".join([self.name, *figures, self.aim(),
                                  self.verdict()]) + " |"


def is_quiet(raws):
    return max(raws) <= 1.2 * min(raws)


def raw_line(raws):
    return ("raw round trip, before and after: "
            + ", ".join(f"{value:.3f}" for value in raws) + " us"
            + ("" if is_quiet(raws) else " (NOT QUIET: they differ)"))


def latency_ratios(run):
    raw = min(run.raws, default=None)
    doubt = "" if raw and is_quiet(run.raws) else "raw differs"
    tcp = run.get("tcp", "tcp_lat", 8)
    yield Ratio("mic mmap round trip / raw",
                run.get("mic", "mmap_rtt_us", 8), raw, most=1.1, doubt=doubt)
    yield Ratio("mic send/recv round trip / raw",
                run.get("mic", "send_recv_rtt_us", 8), raw, most=2, doubt=doubt)
    yield Ratio("rxe send/recv round trip / raw",
                run.get("rxe", "send_recv_rtt_us", 8), raw)
    yield Ratio("TCP round trip / raw", tcp and 2 * tcp, raw)


def memcpy_ratio(run, what, size):
    """With the better of memcpy before and memcpy after, if these are the same.
    No copy is faster: if it seems so, memcpy was slower than it can be."""
    copies = [run.get(f"{when}-{what}", "memcpy_MBps", size)
              for when in ("before", "after")]
    value = run.get("mic", what + "_MBps", size)
    base = max(copies) if all(copies) else None
    doubt = ""
    if base and min(copies) < (1 - TOLERANCE) * base:
        doubt = "memcpy took " + " and ".join(short(copy) for copy in copies)
    elif base and value and value > (1 + TOLERANCE) * base:
        doubt = "more than memcpy"
    return Ratio(f"mic {what} {size_text(size)} / memcpy", value, base,
                 least=1 - TOLERANCE, doubt=doubt)


def copy_ratios(run):
    copies = run.best("memcpy_MBps")
    for size in (65536, 1048576):
        yield Ratio(f"memcpy {size_text(size)} / TCP", copies.get(size),
                    run.get("tcp", "tcp_bw", size))
    for what in ("writeto", "readfrom"):
        for size in (65536, 262144, 1048576, 4194304):
            mic = run.get("mic", what + "_MBps", size)
            text = f"mic {what} {size_text(size)}"
            yield memcpy_ratio(run, what, size)
            yield Ratio(f"{text} / TCP", mic, run.get("tcp", "tcp_bw", size),
                        least=20)
            yield Ratio(f"{text} / rxe", mic,
                        run.get("rxe", what + "_MBps", size), least=10)
    for what, base in (("vwriteto_cached", "vwriteto"),
                       ("vwriteto_cached", "writeto"),
                       ("vreadfrom_cached", "readfrom")):
        for size in (4096, 65536, 1048576):
            yield Ratio(f"mic {what} {size_text(size)} / {base}",
                        run.get("mic", what + "_MBps", size),
                        run.get("mic", base + "_MBps", size))


def all_ratios(run):
    """Those that are known, and those that should be."""
    ratios = [*latency_ratios(run), *copy_ratios(run)]
    return [ratio for ratio in ratios if ratio.known() or ratio.missing()]


def heading(run):
    about = run.about
    return f"""\
# SCIF: figures

One run of `./run vm --out FOLDER -- bench/scif.sh`, {about.get('date', '')}, of the \
tree at {about.get('tree', 'an unknown commit')}:
Linux {about.get('kernel', '')} in a virtual machine with two processors, \
{about.get('processor', '')}.
This page and its drawing are made from it by `bench/scif_chart.py`.
[libscif](libscif.md) has what is measured how, and why an aim is missed.

The bars and the curves are logarithmic: a bar half as long is the square root, and
not half, as many MB/s. The bars of memcpy are the best of its runs; a ratio is to the
better of the one before and the one after what it is compared with, and has no
verdict where these differ by more than {TOLERANCE:.0%}, or memcpy is slower than a \
copy by as much.
"""


def write_document(folder, run):
    lines = [heading(run)]
    if run.failures:
        lines += ["What failed:", "",
                  *(f"- {failure}" for failure in run.failures), ""]
    lines += ["![throughput over transfer size](scif.svg)", "", "```",
              *chart_lines(run, os.path.join(folder, "scif.svg")), "```", ""]
    if run.raws:
        lines += [raw_line(run.raws).capitalize() + ". Round trips in "
                  "microseconds, all else in MB/s:", ""]
    lines += ["| | value | compared with | ratio | aim | |",
              "|---|---:|---:|---:|---|---|",
              *(ratio.row() for ratio in all_ratios(run))]
    with open(os.path.join(folder, "scif-figures.md"), "w",
              encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def print_all(run, svg):
    print(*chart_lines(run, svg), sep="\n")
    if run.raws:
        print(raw_line(run.raws))
    for ratio in all_ratios(run):
        print(ratio.text())
    for failure in run.failures:
        print("failed:", failure)


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    run = Run(arguments[0])
    if len(arguments) == 2:
        write_document(arguments[1], run)
    else:
        print_all(run, os.path.splitext(arguments[0])[0] + ".svg")
    missing = any(ratio.missing() for ratio in all_ratios(run))
    return 1 if run.failures or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
