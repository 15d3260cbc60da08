#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Does Documentation/abi.md say of structures and numbers what mic-abi.h does?

Each structure of the header has a table with the offset and the size of each of its
fields, but for those that are reserved; each number has a row.
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "lib"))
import layouts  # noqa: E402 pylint: disable=wrong-import-position

DOCUMENT = "Documentation/abi.md"
INCLUDES = "kernel/include/uapi"
HEADER = f"{INCLUDES}/rdma/mic-abi.h"
CODE = """#include <stddef.h>
#include <stdio.h>
#include <rdma/mic-abi.h>
"""
BYTES = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8}
FIELD = re.compile(r"(?:(union|struct) \{|\} ?(\w*);|(?:struct )?\w+ (\w+)(?:\[\w+\])?;)")


def bodies(header, kind):
    """Name and content of each structure, or enum."""
    return re.findall(rf"\n{kind} (\w+) \{{\n(.*?)\n\}};", header, re.S)


def declared(body):
    """The names of a structure's fields; those in a part of it begin with its name."""
    names, inside = [], None
    for opens, closes, name in FIELD.findall(body):
        if opens == "struct":
            inside = []
        elif name:
            (names if inside is None else inside).append(name)
        elif closes and inside is not None:
            names += [f"{closes}.{one}" for one in inside]
            inside = None
    return [name for name in names if not re.search(r"(^|\.)reserved\d*$", name)]


def documented(text):
    """structure: (its size, the rows of its table)."""
    return {name: (int(size), re.findall(r"^\| (\d+) \| ([\w\[\]]+) \| ([\w.]+) \|",
                                         table, re.M))
            for name, size, table in re.findall(
                r"\n`struct (\w+)`, (\d+) bytes\.(.*?)(?=\n`struct |\n## )", text, re.S)}


def compiled(expressions):
    """What the compiler makes of expressions."""
    return layouts.compiled(CODE, expressions, f"-I{INCLUDES}")


def size_of(kind):
    """Bytes of a field whose type is written so; None for a structure."""
    word, length = re.match(r"(\w+?)(?:\[(\d+)\])?$", kind).groups()
    return BYTES[word] * int(length or 1) if word in BYTES else None


def compare(struct, names, size, rows):
    """What is not the same, in words."""
    for name in sorted(set(names) ^ {row[2] for row in rows}):
        yield f"{name} is in one of them only"
    rows = [row for row in rows if row[2] in names]
    numbers = compiled([f"sizeof(struct {struct})"] + [
        one for row in rows for one in (f"offsetof(struct {struct}, {row[2]})",
                                        f"sizeof(((struct {struct} *)0)->{row[2]})")])
    if numbers[0] != size:
        yield f"it has {numbers[0]} bytes"
    for i, (offset, kind, name) in enumerate(rows):
        want = size_of(kind) or numbers[2 * i + 2]
        if numbers[2 * i + 1:2 * i + 3] != [int(offset), want]:
            yield f"{name} is at {numbers[2 * i + 1]}, {numbers[2 * i + 2]} bytes"


def numbers_of(text, header):
    """What is not the same of the numbers, in words."""
    names = re.findall(r"^#define (MIC_\w+)[ \t]+\S", header, re.M)
    for _, body in bodies(header, "enum"):
        names += re.findall(r"^\t(MIC_\w+)", body, re.M)
    said = {name: int(value, 0) for name, value in
            re.findall(r"^\| `(MIC_\w+)` \| (\w+) \|", text, re.M)}
    for name in sorted(set(names) ^ said.keys()):
        yield f"{name} is in one of them only"
    known = [name for name in names if name in said]
    for name, value in zip(known, compiled(known)):
        if value != said[name]:
            yield f"{name} is {value:#x}"


def main():
    text = layouts.read(DOCUMENT)
    header = re.sub(r"/\*.*?\*/", "", layouts.read(HEADER), flags=re.S)
    tables = documented(text)
    results = [(struct, list(compare(struct, declared(body), *tables[struct]))
                if struct in tables else ["it is not there"])
               for struct, body in bodies(header, "struct")]
    results.append(("numbers", list(numbers_of(text, header))))
    return layouts.report(results)


sys.exit(main())
