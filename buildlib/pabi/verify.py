#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Compare pabi.h with the libibverbs that is installed.

Distributions promise nothing about the interface pabi.h declares: its symbol
version stayed the same while structures moved. So before a provider is built,
and again in a test, this looks at the library itself:

  release   the version in the library's file name, and pabi.h's
  symbols   every libibverbs symbol the provider imports exists there, under
            the version it was linked with
  table     the order of the provider operations, read from the relocations of
            the dummy table in libibverbs.a, where that is installed
  probe     the same, as the shared library behaves; and where it looks for
            the mask of an extended queue pair

It uses readelf, nm and ar from binutils.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

WHAT_TO_DO = """
buildlib/pabi/pabi.h declares the private provider interface of libibverbs for
rdma-core %(ours)s, but the installed library differs (above). Either install
libibverbs-dev of rdma-core %(ours)s, or build the provider against the sources
of the installed release:
    cmake -S . -B build/user -DRDMA_CORE_SRC=DIR
with DIR a checkout of https://github.com/linux-rdma/rdma-core at that release."""

PRIVATE = "IBVERBS_PRIVATE_34"
TABLE = "verbs_dummy_ops"


class Mismatch(Exception):
    """The library is not what pabi.h says."""


def run(*command):
    return subprocess.run(command, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def header_release(header):
    with open(header, encoding="ascii") as file:
        return int(re.search(r"^#define PABI_RDMA_CORE_VERSION (\d+)",
                             file.read(), re.MULTILINE).group(1))


def library_release(library):
    """The release in libibverbs.so.1.ABI.RELEASE.0."""
    name = os.path.basename(os.path.realpath(library))
    match = re.fullmatch(r"libibverbs\.so\.1\.\d+\.(\d+)\.\d+", name)
    if not match:
        raise Mismatch(f"{name}: no release in the library's file name")
    return int(match.group(1))


def check_release(args):
    ours, theirs = header_release(args.header), library_release(args.library)
    if ours != theirs:
        raise Mismatch(f"the installed libibverbs is from rdma-core {theirs}")
    if PRIVATE not in exported_symbols(args.library).values():
        raise Mismatch(f"the library has no symbol version {PRIVATE}")


def exported_symbols(library):
    """Symbol to default version of what a shared library defines."""
    symbols = {}
    for line in run("nm", "-D", "--defined-only", "--with-symbol-versions",
                    library).splitlines():
        name, _, version = line.split()[-1].partition("@@")
        if version:
            symbols[name] = version
    return symbols


def imported_symbols(provider):
    """Symbol to version of what the provider wants from libibverbs."""
    symbols = {}
    for line in run("nm", "-D", "--undefined-only", "--with-symbol-versions",
                    provider).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if version.startswith("IBVERBS_"):
            symbols[name] = version
    return symbols


def check_imports(args):
    exported = exported_symbols(args.library)
    imported = imported_symbols(args.imports)
    if "verbs_register_driver_34" not in imported:
        raise Mismatch(f"{args.imports} does not register as a provider")
    for name, version in sorted(imported.items()):
        if exported.get(name) != version:
            raise Mismatch(f"the library has {name} as "
                           f"{exported.get(name)}, not as {version}")


def functions_by_address(obj):
    """(section index, address) to name, of the functions in an object."""
    functions = {}
    for line in run("readelf", "-Ws", obj).splitlines():
        field = line.split()
        if len(field) == 8 and field[3] == "FUNC" and field[6].isdigit():
            functions[int(field[6]), int(field[1], 16)] = field[7]
    return functions


def table_symbol(obj):
    """Section index, offset and size of the dummy table."""
    for line in run("readelf", "-Ws", obj).splitlines():
        field = line.split()
        if len(field) == 8 and field[7].endswith(TABLE):
            return int(field[6]), int(field[1], 16), int(field[2], 0)
    raise Mismatch(f"libibverbs.a has no {TABLE}")


def section_names(obj):
    """Index to name of the sections of an object."""
    return {int(match.group(1)): match.group(2) for match in
            re.finditer(r"^\s*\[\s*(\d+)\] (\S+)",
                        run("readelf", "-WS", obj), re.MULTILINE)}


def relocations(obj, section):
    """Offset to (symbol, addend) of the relocations of a section."""
    found, inside = {}, False
    for line in run("readelf", "-Wr", obj).splitlines():
        if line.startswith("Relocation section"):
            inside = f"'.rela{section}'" in line
        match = re.match(r"([0-9a-f]+)\s+[0-9a-f]+\s+\S+\s+[0-9a-f]+\s+"
                         r"(\S+) \+ ([0-9a-f]+)$", line)
        if inside and match:
            found[int(match.group(1), 16)] = (match.group(2),
                                              int(match.group(3), 16))
    return found


def archive_table(archive):
    """Names of the operations in the order of the library's table."""
    with tempfile.TemporaryDirectory() as folder:
        archive = os.path.realpath(archive)
        subprocess.run(["ar", "x", archive, "dummy_ops.c.o"], cwd=folder,
                       check=True)
        obj = os.path.join(folder, "dummy_ops.c.o")
        functions, sections = functions_by_address(obj), section_names(obj)
        number = {name: index for index, name in sections.items()}
        index, start, size = table_symbol(obj)
        relocs = relocations(obj, sections[index])
        names = []
        for offset in range(start, start + size, 8):
            symbol, addend = relocs[offset]
            name = symbol if symbol not in number else \
                functions[number[symbol], addend]
            names.append(name)
        return names


def check_table(ours, archive):
    theirs = archive_table(archive)
    for index, name in enumerate(theirs):
        if ours.get(index) != name:
            raise Mismatch(f"operation {index} of libibverbs.a is {name}, "
                           f"in pabi.h it is {ours.get(index)}")
    if len(ours) != len(theirs):
        raise Mismatch(f"libibverbs.a has {len(theirs)} operations, "
                       f"pabi.h has {len(ours)}")


def check_probe(args):
    ours, seen, qp_ex = {}, {}, None
    if args.table:
        with open(args.table, encoding="ascii") as file:
            output = file.read()
    else:
        output = run(args.probe)
    for line in output.splitlines():
        kind, *rest = line.split()
        if kind == "op":
            ours[int(rest[0])] = rest[1]
        elif kind == "seen":
            seen[int(rest[0])] = rest[1]
        elif kind == "qp_ex":
            qp_ex = rest[0]
    if args.archive:
        check_table(ours, args.archive)
    for index, name in seen.items():
        if ours.get(index) != name:
            raise Mismatch(f"libibverbs.so takes operation {index} for "
                           f"{name}, in pabi.h it is {ours.get(index)}")
    if len(seen) < 50:
        raise Mismatch("the probe of libibverbs.so saw too little")
    if qp_ex != "ok":
        raise Mismatch("libibverbs.so has verbs_qp.comp_mask elsewhere")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="libibverbs.so")
    parser.add_argument("--archive", help="libibverbs.a")
    parser.add_argument("--header", required=True, help="pabi.h")
    parser.add_argument("--release", action="store_true",
                        help="check the library's release")
    parser.add_argument("--imports", metavar="PROVIDER",
                        help="check the symbols a provider imports")
    parser.add_argument("--probe", metavar="PROGRAM",
                        help="check the layout that pabi-probe prints")
    parser.add_argument("--table", metavar="FILE",
                        help="check this output of pabi-probe")
    args = parser.parse_args()
    try:
        if args.release:
            check_release(args)
        if args.imports:
            check_imports(args)
        if args.probe or args.table:
            check_probe(args)
    except Mismatch as mismatch:
        print(f"pabi: {mismatch}", file=sys.stderr)
        print(WHAT_TO_DO % {"ours": header_release(args.header)},
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
