#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Print the results of nodes.sh as tables.

usage: nodes.py DIRECTORY

Those of the boot with apertures are in its folder "aperture".
"""

import os
import sys

from report import (BW_TESTS, KIB, LAT_TESTS, Aims, print_by_size, print_raw,
                    print_rates, print_remarks, print_table)
from results import Results, number_text, ratio, size_text


class NodeAims(Aims):
    """What is reached, beside what the region can do and what rxe can."""

    def of_region(self, test, size):
        return ratio(self.get(test, size),
                     self.results.get("memcpy_bw", "region", size))

    def direct(self):
        for size in (64 * KIB, 1024 * KIB):
            self.row(f"WRITE {size_text(size)} / memcpy into the region",
                     self.of_region("slice_write_bw", size), ">=", 0.8)
        self.row("WRITE 8 B / raw", self.of_raw("slice_write_lat"), "<=", 2)

    def channel(self):
        for size in (64 * KIB, 1024 * KIB):
            self.row(f"ib_write_bw {size_text(size)} / memcpy into the region",
                     self.of_region("ib_write_bw", size), ">=", 0.4)
        self.row("ib_send_lat 8 B / raw", self.of_raw("ib_send_lat"),
                 "<=", 6)
        for test in BW_TESTS:
            self.row(f"{test} 64 KiB / rxe",
                     ratio(self.get(test, 64 * KIB),
                           self.results.get(test, "rxe", 64 * KIB)),
                     ">=", 10)
        for test in LAT_TESTS:
            self.row(f"rxe / {test} 8 B",
                     ratio(self.results.get(test, "rxe", 8),
                           self.get(test, 8)), ">=", 10)


class ApertureAims(Aims):
    """Of the other boot: both figures are from that one."""

    def direct(self):
        for size in (64 * KIB, 1024 * KIB):
            self.row(f"WRITE {size_text(size)} / memcpy into the region",
                     ratio(self.get("aperture_write_bw", size),
                           self.results.get("memcpy_bw", "aperture-region",
                                            size)), ">=", 0.8)


def print_aperture(results):
    """Each size: what is written, beside memcpy into the region."""
    rows = [["size", "region", "write", "write / region"]]
    for size, copied in results.series("memcpy_bw", "aperture-region"):
        written = results.get("aperture_write_bw", "mic", size)
        rows.append([size_text(size), number_text(copied),
                     number_text(written),
                     number_text(ratio(written, copied))])
    print("Into ordinary memory through an aperture, another boot, MiB/s")
    print_table(rows)
    print()
    aims = ApertureAims(results, "mic")
    aims.direct()
    aims.print("Into ordinary memory through an aperture")


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    results = Results(os.path.join(arguments[0], "results.json"))
    print_nodes(results)
    print_remarks(arguments[0])
    aperture = os.path.join(arguments[0], "aperture")
    if os.path.exists(os.path.join(aperture, "results.json")):
        print_aperture(Results(os.path.join(aperture, "results.json")))
        print_remarks(aperture)
    return 0


def print_nodes(results):
    print_by_size(results, "Throughput, MiB/s", "_bw", BW_TESTS,
                  [("memcpy", "memcpy_bw", "memcpy"),
                   ("region", "memcpy_bw", "region"),
                   ("write dm", "slice_write_bw", "mic"),
                   ("tcp", "tcp_bw", "tcp")])
    print_by_size(results, "Latency one way, us (read, atomic: round trip)",
                  "_lat", LAT_TESTS, [("write dm", "slice_write_lat", "mic"),
                                       ("tcp", "tcp_lat", "tcp")])
    print_raw(results)
    print_rates(results)
    aims = NodeAims(results, "mic")
    aims.channel()
    aims.print("Through the channel")
    aims = NodeAims(results, "mic")
    aims.direct()
    aims.print("Into device memory")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
