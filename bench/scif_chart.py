#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
"""Draw what bench/scif.sh measured: SCIF on mic and on rxe, TCP and memcpy.

usage: scif_chart.py RESULTS [FOLDER]

RESULTS has lines "LABEL WHAT BYTES VALUE", and "about WHAT TEXT". Prints the chart
and the ratios as text, with what is aimed at; the drawing goes beside RESULTS, as
.svg. With FOLDER, both go there instead, as scif-figures.md and scif.svg.
"""

import collections
import json
import os
import statistics
import subprocess
import sys

from results import size_text

CURVES = [("memcpy_MBps", "local", "memcpy_MBps"),
          ("mic writeto_MBps", "mic", "writeto_MBps"),
          ("mic readfrom_MBps", "mic", "readfrom_MBps"),
          ("TCP_MBps", "tcp", "tcp_bw"),
          ("rxe writeto_MBps", "rxe", "writeto_MBps"),
          ("rxe readfrom_MBps", "rxe", "readfrom_MBps")]
SCIF_PERF = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                         "../build/user/bin/scif-perf")


def read_results(path):
    """The values by (label, what) and size, all of the raw round trips, and what
    is said about the run."""
    series = collections.defaultdict(dict)
    raws = []
    about = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if words[:1] == ["about"]:
                about[words[1]] = " ".join(words[2:])
            elif "{" in line:  # bench-tcp's JSON, in MiB/s
                result = json.loads(line[line.index("{"):])
                factor = 1.048576 if result["unit"] == "MiB/s" else 1
                series[words[0], result["test"]][int(result["size"])] = \
                    float(result["value"]) * factor
            elif len(words) == 4:
                if words[1] == "raw_rtt_us":
                    raws.append(float(words[3]))
                series[words[0], words[1]][int(words[2])] = float(words[3])
    return series, raws, about


def chart_lines(series, svg):
    """The bars that scif-perf prints, which also draws."""
    results = [f"{name} {size} {value}"
               for name, label, what in CURVES
               for size, value in sorted(series[label, what].items())]
    chart = subprocess.run([SCIF_PERF, "chart", svg], check=True, text=True,
                           input="\n".join(results) + "\n",
                           stdout=subprocess.PIPE)
    return chart.stdout.splitlines()


def short(value):
    """Three digits, or all that are before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


class Ratio:
    """A value, what it is compared with, and what is aimed at."""

    def __init__(self, name, value, base, most=None, least=None):
        self.name = name
        self.value = value
        self.base = base
        self.most = most
        self.least = least

    def known(self):
        return bool(self.value and self.base)

    def aim(self):
        if self.most is not None:
            return f"<= {self.most}"
        return "" if self.least is None else f">= {self.least}"

    def verdict(self):
        ratio = self.value / self.base
        if self.most is not None:
            return "met" if ratio <= self.most else "MISSED"
        if self.least is not None:
            return "met" if ratio >= self.least else "MISSED"
        return ""

    def text(self):
        aim = f", aim {self.aim()}: {self.verdict()}" if self.aim() else ""
        return (f"{self.name}: {self.value:.3f} / {self.base:.3f} = "
                f"{self.value / self.base:.3f}{aim}")

    def row(self):
        cells = [self.name, short(self.value), short(self.base),
                 short(self.value / self.base), self.aim(), self.verdict()]
        return "| " + " | ".join(cells) + " |"


def raw_line(raws):
    return ("raw round trip, before and after: "
            + ", ".join(f"{value:.3f}" for value in raws) + " us"
            + (" (NOT QUIET: they differ)"
               if max(raws) > 1.2 * min(raws) else ""))


def latency_ratios(series, raws):
    raw = statistics.mean(raws) if raws else None
    tcp = series["tcp", "tcp_lat"].get(8)
    yield Ratio("mic mmap round trip / raw",
                series["mic", "mmap_rtt_us"].get(8), raw, most=1.1)
    yield Ratio("mic send/recv round trip / raw",
                series["mic", "send_recv_rtt_us"].get(8), raw, most=2)
    yield Ratio("rxe send/recv round trip / raw",
                series["rxe", "send_recv_rtt_us"].get(8), raw)
    yield Ratio("TCP round trip / raw", tcp and 2 * tcp, raw)


def copy_ratios(series):
    for size in (65536, 1048576):
        yield Ratio(f"memcpy {size_text(size)} / TCP",
                    series["local", "memcpy_MBps"].get(size),
                    series["tcp", "tcp_bw"].get(size))
    for what in ("writeto", "readfrom"):
        for size in (65536, 262144, 1048576, 4194304):
            mic = series["mic", what + "_MBps"].get(size)
            text = f"mic {what} {size_text(size)}"
            yield Ratio(f"{text} / memcpy", mic,
                        series["local", "memcpy_MBps"].get(size), least=0.95)
            yield Ratio(f"{text} / TCP", mic,
                        series["tcp", "tcp_bw"].get(size), least=20)
            yield Ratio(f"{text} / rxe", mic,
                        series["rxe", what + "_MBps"].get(size), least=10)
    for what, base in (("vwriteto_cached", "vwriteto"),
                       ("vwriteto_cached", "writeto"),
                       ("vreadfrom_cached", "readfrom")):
        for size in (4096, 65536, 1048576):
            yield Ratio(f"mic {what} {size_text(size)} / {base}",
                        series["mic", what + "_MBps"].get(size),
                        series["mic", base + "_MBps"].get(size))


def all_ratios(series, raws):
    ratios = [*latency_ratios(series, raws), *copy_ratios(series)]
    return [ratio for ratio in ratios if ratio.known()]


def write_document(folder, series, raws, about):
    lines = ["# SCIF: figures", "",
             "One run of `./run vm --out FOLDER -- bench/scif.sh`, "
             f"{about.get('date', '')}, of the tree at "
             f"{about.get('tree', 'an unknown commit')}:",
             f"Linux {about.get('kernel', '')} in a virtual machine with two "
             f"processors, {about.get('processor', '')}.",
             "This page and its drawing are made from it by "
             "`bench/scif_chart.py`. [libscif](libscif.md) has what is",
             "measured how, and why an aim is missed. The bars and the curves "
             "are logarithmic:", "a bar half as long is the square root, and "
             "not half, as many MB/s.", "",
             "![throughput over transfer size](scif.svg)", "", "```",
             *chart_lines(series, os.path.join(folder, "scif.svg")),
             "```", ""]
    if raws:
        lines += [raw_line(raws).capitalize() + ". Round trips in "
                  "microseconds, all else in MB/s:", ""]
    lines += ["| | value | compared with | ratio | aim | |",
              "|---|---:|---:|---:|---|---|",
              *(ratio.row() for ratio in all_ratios(series, raws))]
    with open(os.path.join(folder, "scif-figures.md"), "w",
              encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    series, raws, about = read_results(arguments[0])
    if len(arguments) == 2:
        write_document(arguments[1], series, raws, about)
        return 0
    print(*chart_lines(series, arguments[0].rsplit(".", 1)[0] + ".svg"),
          sep="\n")
    if raws:
        print(raw_line(raws))
    for ratio in all_ratios(series, raws):
        print(ratio.text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
