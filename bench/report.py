#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Print the results of measure.sh as tables.

usage: report.py [--demo | --mpi] DIRECTORY

With --demo: each perftest program on mic and on rxe, side by side. With --mpi:
only the table of MPI.
"""

import os
import sys

from results import BUSY, Results, number_text, ratio, size_text

KIB = 1024
DEVICES = ("mic", "rxe")
ENGINE = "mic-engine"
POLLED = "mic-poll"
BW_TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw")
MPI_DEVICES = ("mic", "mic-ud", "tcp", "shm")
NVME_DEVICES = ("mic", "rxe", "tcp")
NVME_TESTS = (("nvme_read_lat", 4 * KIB, "read {}, us"),
              ("nvme_write_lat", 4 * KIB, "write {}, us"),
              ("nvme_read_rate", 4 * KIB, "read {}, 32 under way, kIOPS"),
              ("nvme_read_bw", 128 * KIB, "read {}, 4 under way, MiB/s"))
LAT_TESTS = ("ib_write_lat", "ib_send_lat", "ib_read_lat", "ib_atomic_lat")


def print_table(rows, indent="  "):
    """Columns as wide as they need to be; the first one to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width)
                  for cell, width in zip(row[1:], widths[1:])]
        print((indent + "  ".join(cells)).rstrip())


def print_part(title, rows):
    """A table below its title; nothing if it has no more than a header."""
    if len(rows) == 1:
        return
    print(title)
    print_table(rows)
    print()


def short_name(test):
    return test.split("_")[1]


def print_by_size(results, title, suffix, tests, others):
    columns = [(test, device) for device in ("mic", ENGINE, POLLED, "rxe")
               for test in tests if results.series(test, device)]
    header = ["size"] + [name for name, _, _ in others]
    header += [f"{device} {short_name(test)}" for test, device in columns]
    rows = [header]
    for size in results.sizes(suffix):
        row = [size_text(size)]
        row += [number_text(results.get(test, device, size))
                for _, test, device in others]
        row += [number_text(results.get(test, device, size))
                for test, device in columns]
        rows.append(row)
    print_part(title, rows)


def print_rates(results):
    rows = [["", "mic", ENGINE, "rxe", "mic / rxe"]]
    for test in BW_TESTS:
        name = test.replace("_bw", "_rate")
        mic, rxe = (results.get(name, device, 8) for device in DEVICES)
        engine = results.get(name, ENGINE, 8)
        rows.append([short_name(test), number_text(mic), number_text(engine),
                     number_text(rxe), number_text(ratio(mic, rxe))])
    print_part("8-byte messages, millions per second", rows)


def print_scaling(results):
    for test, name in (("write_qps", "queue pairs"),
                       ("write_mrs", "memory regions")):
        series = results.series(test, "mic")
        if not series:
            continue
        print(f"An 8-byte write, post to completion, among {name}, us")
        print("(raw: a load among as many pages)")
        print_table([[name, "mic", ENGINE, "raw"]] +
                    [[str(count), number_text(value),
                      number_text(results.get(test, ENGINE, count)),
                      number_text(results.get("raw_pages", "raw", count))]
                     for count, value in series])
        print()


def print_fairness(results):
    budget = results.get("fair_budget", "mic", 1024 * KIB)
    if budget is None:
        return
    print("An 8-byte write beside one of 1 MiB, us; 1 MiB takes"
          f" {number_text(budget)}")
    print_table([["", "median", "99 %"]] +
                [[what] + [number_text(results.get(f"fair_{what}_{p}", "mic", 8))
                           for p in ("p50", "p99")]
                 for what in ("alone", "beside", "behind")])
    print()
    one, two = (results.series(f"busy_{n}", "mic") for n in ("one", "two"))
    for (qps, rate), (_, both) in zip(one, two):
        print(f"{qps} busy queue pairs, Mmsg/s: {number_text(rate)} by one"
              f" process, {number_text(both)} by two")
        print()


def print_mpi(results):
    rows = [["", "size", *MPI_DEVICES]]
    for kind in ("openmpi", "mpich"):
        for figure, unit in (("latency", "us"), ("bandwidth", "MiB/s")):
            test = f"{kind}_{figure}"
            for size, _ in results.series(test, "mic"):
                rows.append([f"{kind} {figure}, {unit}", size_text(size)] +
                            [number_text(results.get(test, device, size))
                             for device in MPI_DEVICES])
    print_part("MPI between two nodes: mic by RC, by UD, TCP; shm: on one node",
               rows)


def print_nvme(results):
    rows = [["", *NVME_DEVICES]]
    for test, size, what in NVME_TESTS:
        if results.series(test, "mic"):
            rows.append([what.format(size_text(size))] +
                        [number_text(results.get(test, device, size))
                         for device in NVME_DEVICES])
    print_part("A disk in memory, by NVMe over Fabrics, both sides the kernel's",
               rows)


class Aims:
    """What the figures are compared with. Nothing fails because of them."""

    def __init__(self, results, device):
        self.results = results
        self.device = device
        self.rows = []

    def get(self, test, size):
        """What has no figure of its own for the device is as on mic."""
        value = self.results.get(test, self.device, size)
        return self.results.get(test, "mic", size) if value is None else value

    def row(self, what, measured, relation, bound):
        verdict = ""
        if measured is not None:
            reached = (measured >= bound if relation == ">="
                       else measured <= bound)
            verdict = "reached" if reached else "not reached"
        self.rows.append([what, number_text(measured), f"{relation} {bound}",
                          verdict])

    def of_memcpy(self, test, size):
        return ratio(self.get(test, size),
                     self.results.get("memcpy_bw", "memcpy", size))

    def worst_of_memcpy(self, test, least):
        """The smallest of the ratios to memcpy from a size on."""
        ratios = [self.of_memcpy(test, size)
                  for size, _ in self.results.series(test, "mic")
                  if size >= least]
        ratios = [r for r in ratios if r is not None]
        return min(ratios) if ratios else None

    def growth(self, test):
        """The cost with the most of them, beside that with one."""
        series = self.results.series(test, self.device)
        return ratio(series[-1][1], series[0][1]) if series else None

    def growth_beside_pages(self, test):
        """The same, less what so many pages cost whoever accesses them."""
        series = self.results.series(test, self.device)
        if not series:
            return None
        (least, first), (most, last) = series[0], series[-1]
        one, many = (self.results.get("raw_pages", "raw", count)
                     for count in (least, most))
        if one is None or many is None:
            return None
        return ratio(last - (many - one), first)

    def unfairness(self, what):
        """How many budgets large writes add to the p99 of a small one."""
        alone, other = (self.results.get(f"fair_{w}_p99", "mic", 8)
                        for w in ("alone", what))
        if alone is None or other is None:
            return None
        return ratio(other - alone,
                     self.results.get("fair_budget", "mic", 1024 * KIB))

    def of_raw(self, test):
        return ratio(self.get(test, 8), self.results.raw())

    def of_rxe(self, test):
        return ratio(self.get(test, 8), self.results.get(test, "rxe", 8))

    def flatness(self):
        self.row("cost of a write, most queue pairs / one",
                 self.growth("write_qps"), "<=", 1.2)
        self.row("cost of a write, most regions / one",
                 self.growth("write_mrs"), "<=", 1.2)
        self.row("the same, less loads from as many pages",
                 self.growth_beside_pages("write_mrs"), "<=", 1.2)

    def engine(self):
        size = 64 * KIB
        for test, bound in (("ib_write_bw", 0.6), ("ib_read_bw", 0.6),
                            ("ib_send_bw", 0.5)):
            self.row(f"{test} {size_text(size)} / memcpy",
                     self.of_memcpy(test, size), ">=", bound)
        self.row("ib_send_lat 8 B / rxe", self.of_rxe("ib_send_lat"),
                 "<=", 0.25)
        self.row("ib_write_bw 8 B, messages / rxe",
                 self.of_rxe("ib_write_rate"), ">=", 10)
        self.flatness()

    def direct(self):
        for test in ("ib_write_bw", "ib_read_bw"):
            self.row(f"{test} from 64 KiB on / memcpy",
                     self.worst_of_memcpy(test, 64 * KIB), ">=", 0.95)
            self.row(f"{test} 4 KiB / memcpy",
                     self.of_memcpy(test, 4 * KIB), ">=", 0.8)
        for test in ("ib_write_lat", "ib_read_lat", "ib_atomic_lat"):
            self.row(f"{test} 8 B / raw", self.of_raw(test), "<=", 2)
        self.row("ib_write_lat 8 B / rxe", self.of_rxe("ib_write_lat"),
                 "<=", 0.1)
        self.row("ib_send_lat 8 B, queues polled / raw",
                 ratio(self.results.get("ib_send_lat", POLLED, 8),
                       self.results.raw()), "<=", 4)
        self.row("ib_write_bw 8 B, messages / rxe",
                 self.of_rxe("ib_write_rate"), ">=", 50)
        self.flatness()
        self.row("p99 of a write beside 1 MiB, more than alone / 1 MiB",
                 self.unfairness("beside"), "<=", 1)

    def print(self, title):
        print_part(title, [["", "measured", "aim", ""]] + self.rows)


def print_raw(results):
    print(f"raw: a cache line takes {number_text(results.raw())} us"
          " from one process to the other")
    for size, value in results.series("inbox_send", "inbox"):
        print(f"a ring that the receiver drains, {size_text(size)}:"
              f" {number_text(value)} us")
    print()


def print_all(results):
    print_by_size(results, "Throughput, MiB/s", "_bw", BW_TESTS,
                  [("memcpy", "memcpy_bw", "memcpy"),
                   ("tcp", "tcp_bw", "tcp")])
    print_by_size(results, "Latency one way, us (read, atomic: round trip)",
                  "_lat", LAT_TESTS, [("tcp", "tcp_lat", "tcp")])
    print_raw(results)
    print_rates(results)
    print_scaling(results)
    print_fairness(results)
    print_nvme(results)
    print_mpi(results)
    engine = Aims(results, ENGINE)
    engine.engine()
    engine.print("The engine path's aims")
    direct = Aims(results, "mic")
    direct.direct()
    direct.print("The direct path's aims")


def demo_row(results, test, size, unit):
    mic, rxe = (results.get(test, device, size) for device in DEVICES)
    if unit == "us":
        faster, base, name = ratio(rxe, mic), results.raw(), "raw"
    else:
        faster = ratio(mic, rxe)
        base, name = results.get("memcpy_bw", "memcpy", size), "memcpy"
    return [test, size_text(size), unit, number_text(mic), number_text(rxe),
            number_text(faster) + " x",
            f"{number_text(ratio(mic, base))} x {name}"]


def print_demo(results):
    rows = [["", "size", "", "mic", "rxe", "mic is faster", "mic beside"]]
    for test in BW_TESTS:
        rows.append(demo_row(results, test, 64 * KIB, "MiB/s"))
    for test in LAT_TESTS:
        rows.append(demo_row(results, test, 8, "us"))
    print()
    print_table(rows)
    print()
    copy = results.get("memcpy_bw", "memcpy", 64 * KIB)
    rows = [["memcpy, 64 KiB", number_text(copy), "MiB/s"],
            ["raw: a cache line from one process to the other",
             number_text(results.raw()), "us"]]
    for test, size, unit in (("tcp_bw", 64 * KIB, "MiB/s"),
                             ("tcp_lat", 8, "us")):
        rows.append([f"TCP over loopback, {size_text(size)}",
                     number_text(results.get(test, "tcp", size)), unit])
    print_table(rows)
    print()


def print_remarks(directory):
    for name, title in (
            ("busy", f"{BUSY} The machine was busy meanwhile (a cache line took"
                     " as long as shown), don't trust:"),
            ("failed", "Failed:")):
        path = os.path.join(directory, name)
        if os.path.exists(path):
            print(title)
            with open(path, encoding="utf-8") as lines:
                for line in lines:
                    print("  " + line.rstrip())
            print()


def main(arguments):
    printers = {"--demo": print_demo, "--mpi": print_mpi}
    options = [a for a in arguments if a in printers]
    directories = [a for a in arguments if a not in printers]
    if len(directories) != 1 or len(options) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    results = Results(os.path.join(directories[0], "results.json"))
    for option in options or [None]:
        printers.get(option, print_all)(results)
    print_remarks(directories[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
