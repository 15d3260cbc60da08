#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Looks in the running kernel for atomic instructions that are not any more.

  prefixes.py MODULE NAME   in the functions of a module whose names begin so

A kernel for x86 that finds one processor puts another prefix (ds) where its own atomic
instructions have lock. With memory that other machines have, too, these are no more
atomic then.
"""

import re
import struct
import sys

# cmpxchg and xadd of 32 or 64 bits, with a memory operand
ATOMIC = rb"[\x40-\x4f]?\x0f[\xb1\xc1][\x00-\xbf]"
LOCKED = re.compile(rb"\xf0" + ATOMIC, re.DOTALL)
UNLOCKED = re.compile(rb"\x3e" + ATOMIC, re.DOTALL)
LOAD = 1  # PT_LOAD


def functions(module, name):
    """Address and size, up to the next symbol, of each of them."""
    symbols = []
    with open("/proc/kallsyms", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if words[3:] == [f"[{module}]"] and words[1] in "tT":
                symbols.append((int(words[0], 16), words[2]))
    symbols.sort()
    for (start, symbol), (end, _) in zip(symbols, symbols[1:]):
        if symbol.startswith(name):
            yield symbol, start, end - start


def segments(core):
    header = core.read(64)
    offset, = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    core.seek(offset)
    table = core.read(size * count)
    for at in range(0, size * count, size):
        kind, = struct.unpack_from("<I", table, at)
        where, start, _, length = struct.unpack_from("<4Q", table, at + 8)
        if kind == LOAD:
            yield where, start, length


def read(core, parts, address, size):
    for where, start, length in parts:
        if start <= address < start + length:
            core.seek(where + address - start)
            return core.read(size)
    sys.exit(f"nothing is at {address:x}")


def main():
    locked = unlocked = 0
    with open("/proc/kcore", "rb") as core:
        parts = list(segments(core))
        for symbol, address, size in functions(*sys.argv[1:]):
            code = read(core, parts, address, size)
            with_lock = len(LOCKED.findall(code))
            without = len(UNLOCKED.findall(code))
            if with_lock or without:
                print(f"{symbol}: {with_lock} locked, {without} not")
            locked += with_lock
            unlocked += without
    if not locked or unlocked:
        sys.exit("not all are locked" if locked or unlocked else "none found")


if __name__ == "__main__":
    main()
