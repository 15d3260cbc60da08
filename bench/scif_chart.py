#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
"""Draw what bench/scif.sh measured: SCIF on mic and on rxe, TCP and memcpy.

usage: scif_chart.py RESULTS

RESULTS has lines "LABEL WHAT BYTES VALUE". Prints the chart and the ratios as
text, with what is aimed at; the drawing goes beside RESULTS, as .svg.
"""

import collections
import json
import math
import statistics
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
    """The values by (label, what) and size, and all of the raw round trips."""
    series = collections.defaultdict(dict)
    raws = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if "{" in line:  # bench-tcp's JSON, in MiB/s
                result = json.loads(line[line.index("{"):])
                factor = 1.048576 if result["unit"] == "MiB/s" else 1
                series[words[0], result["test"]][int(result["size"])] = \
                    float(result["value"]) * factor
            elif len(words) == 4:
                if words[1] == "raw_rtt_us":
                    raws.append(float(words[3]))
                series[words[0], words[1]][int(words[2])] = float(words[3])
    return series, raws


def print_chart(series):
    top = max((max(points.values())
               for (_, what), points in list(series.items())
               if points and "_MBps" in what), default=1)
    for name, label, what, _, _ in CURVES:
        for size, value in sorted(series[label, what].items()):
            part = math.log10(max(value, 1)) / math.log10(max(top, 10))
            print(f"{name:13} {size_text(size):>8} {value:10.1f} MB/s "
                  + "#" * round(BAR * part))


def print_ratio(name, value, base, most=None, least=None):
    if not value or not base:
        return
    ratio = value / base
    aim = ""
    if most is not None:
        aim = f", aim <= {most}: {'met' if ratio <= most else 'MISSED'}"
    if least is not None:
        aim = f", aim >= {least}: {'met' if ratio >= least else 'MISSED'}"
    print(f"{name}: {value:.3f} / {base:.3f} = {ratio:.3f}{aim}")


def print_latencies(series, raws):
    raw = statistics.mean(raws) if raws else None
    if raw:
        print(f"raw round trip: {', '.join(f'{value:.3f}' for value in raws)}"
              " us" + (" (NOT QUIET: they differ)"
                       if max(raws) > 1.2 * min(raws) else ""))
    print_ratio("mic mmap round trip / raw",
                series["mic", "mmap_rtt_us"].get(8), raw, most=1.1)
    print_ratio("mic send/recv round trip / raw",
                series["mic", "send_recv_rtt_us"].get(8), raw, most=2)
    print_ratio("rxe send/recv round trip / raw",
                series["rxe", "send_recv_rtt_us"].get(8), raw)
    tcp = series["tcp", "tcp_lat"].get(8)
    if tcp:
        print_ratio("TCP round trip / raw", 2 * tcp, raw)


def print_ratios(series, raws):
    print_latencies(series, raws)
    for what in ("writeto", "readfrom"):
        for size in (65536, 262144, 1048576, 4194304):
            mic = series["mic", what + "_MBps"].get(size)
            text = f"mic {what} {size_text(size)}"
            print_ratio(f"{text} / memcpy", mic,
                        series["local", "memcpy_MBps"].get(size), least=0.95)
            print_ratio(f"{text} / TCP", mic,
                        series["tcp", "tcp_bw"].get(size), least=20)
            print_ratio(f"{text} / rxe", mic,
                        series["rxe", what + "_MBps"].get(size), least=10)
    for what, base in (("vwriteto_cached", "vwriteto"),
                       ("vwriteto_cached", "writeto"),
                       ("vreadfrom_cached", "readfrom")):
        for size in (4096, 65536, 1048576):
            print_ratio(f"mic {what} {size_text(size)} / {base}",
                        series["mic", what + "_MBps"].get(size),
                        series["mic", base + "_MBps"].get(size))


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    series, raws = read_results(arguments[0])
    chart = Chart("Throughput of SCIF over transfer size", "MB/s")
    for name, label, what, device, operation in CURVES:
        chart.add(name, device, operation,
                  sorted(series[label, what].items()))
    chart.write(arguments[0].rsplit(".", 1)[0] + ".svg")
    print_chart(series)
    print_ratios(series, raws)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
