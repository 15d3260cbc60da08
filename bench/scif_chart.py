#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
"""Draw what bench/scif.sh measured: SCIF on mic and on rxe, TCP and memcpy.

usage: scif_chart.py RESULTS

RESULTS has lines "LABEL WHAT BYTES VALUE". Prints the chart and the ratios as
text; the drawing goes beside RESULTS, as .svg.
"""

import collections
import json
import math
import sys

from plot import Chart
from results import size_text

CURVES = [("memcpy", "local", "memcpy_MBps", "memcpy", ""),
          ("mic writeto", "mic", "writeto_MBps", "mic", "write"),
          ("mic readfrom", "mic", "readfrom_MBps", "mic", "read"),
          ("TCP", "tcp", "tcp_bw", "tcp", ""),
          ("rxe writeto", "rxe", "writeto_MBps", "rxe", "write"),
          ("rxe readfrom", "rxe", "readfrom_MBps", "rxe", "read")]
BAR = 40


def read_results(path):
    series = collections.defaultdict(dict)
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if "{" in line:  # bench-tcp's JSON, in MiB/s
                result = json.loads(line[line.index("{"):])
                factor = 1.048576 if result["unit"] == "MiB/s" else 1
                series[words[0], result["test"]][int(result["size"])] = \
                    float(result["value"]) * factor
            elif len(words) == 4:
                series[words[0], words[1]][int(words[2])] = float(words[3])
    return series


def print_chart(series):
    top = max((max(points.values()) for (_, what), points in series.items()
               if points and "_MBps" in what), default=1)
    for name, label, what, _, _ in CURVES:
        for size, value in sorted(series[label, what].items()):
            part = math.log10(max(value, 1)) / math.log10(max(top, 10))
            print(f"{name:13} {size_text(size):>8} {value:10.1f} MB/s "
                  + "#" * round(BAR * part))


def print_ratio(name, value, base):
    if value and base:
        print(f"{name}: {value:.3g} / {base:.3g} = {value / base:.3g}")


def print_ratios(series):
    raw = series["local", "raw_rtt_us"].get(8)
    for label in ("mic", "rxe"):
        print_ratio(f"{label} send/recv round trip / raw",
                    series[label, "send_recv_rtt_us"].get(8), raw)
        print_ratio(f"{label} mmap round trip / raw",
                    series[label, "mmap_rtt_us"].get(8), raw)
    for what in ("writeto_MBps", "readfrom_MBps"):
        for size in (65536, 262144, 1048576, 4194304):
            mic = series["mic", what].get(size)
            text = f"mic {what[:-5]} {size_text(size)}"
            for name, key in (("memcpy", ("local", "memcpy_MBps")),
                              ("TCP", ("tcp", "tcp_bw")),
                              ("rxe", ("rxe", what))):
                print_ratio(f"{text} / {name}", mic, series[key].get(size))


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    series = read_results(arguments[0])
    chart = Chart("Throughput of SCIF over transfer size", "MB/s")
    for name, label, what, device, operation in CURVES:
        chart.add(name, device, operation,
                  sorted(series[label, what].items()))
    chart.write(arguments[0].rsplit(".", 1)[0] + ".svg")
    print_chart(series)
    print_ratios(series)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
