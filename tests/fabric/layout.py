#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Does Documentation/fabric.md say of the region what kernel/ivshmem/layout.h does?

Each table of fields in the one is compared with the offsets and sizes that the
compiler gives the other, and each field of the other must be in a table.
"""

import re
import subprocess
import sys
import tempfile

DOCUMENT = "Documentation/fabric.md"
HEADER = "kernel/ivshmem/layout.h"

# What comes before each table, and the structure it is about.
TABLES = (
    ("### Header", "mic_region_hdr"),
    ("### Node table", "mic_region_node"),
    ("### Channels", "mic_region_channel"),
    ("### Lanes", "mic_rec"),
    ("A **request**", "mic_rec_request"),
    ("A **response**", "mic_rec_response"),
    ("### Slices", "mic_region_map"),
    ("A **beacon**", "mic_beacon"),
)

PRELUDE = """
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#define ETH_ALEN 6
"""

BITS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
TYPE = re.compile(r"(?:(u\d+)(?:\[(\d+)\])?|(\d+) each)(?: ×(\d+))?$")


def rows(text, mark):
    """The cells of the table behind a line that begins with a mark."""
    lines = text[text.index("\n" + mark):].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| offset"))
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            break
        yield [cell.strip() for cell in line.strip("|").split("|")]


def documented(text, mark):
    """name: (offset, bytes) of each field; what is 0 has no name."""
    fields = {}
    for offset, kind, name, *_ in rows(text, mark):
        word, length, each, times = TYPE.match(kind).groups()
        size = int(each) if each else BITS[word] * int(length or 1)
        names = name.split(", ") if times else [name.split(",")[0]]
        if len(names) != int(times or 1):
            sys.exit(f"{mark}: {kind} for {name}")
        for i, one in enumerate(names):
            if one not in ("", "0"):
                fields[one] = (int(offset) + i * size, size)
    return fields


def declared(header, struct):
    """The names of a structure's fields, without what is 0."""
    body = re.search(rf"\nstruct {struct} {{\n(.*?)\n}};", header, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    names = re.findall(r"(\w+)(?:\[\w+\])?;", body)
    return {name for name in names if not re.match(r"zero\d*$|rec$", name)}


def compiled(header, expressions):
    """What the compiler makes of expressions."""
    lines = "\n".join(f'printf("%llu\\n", (unsigned long long)({one}));'
                      for one in expressions)
    code = PRELUDE + re.sub(r"#include.*", "", header) + \
        f"int main(void) {{ {lines} return 0; }}"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", "-x", "c", "-", "-o", f"{folder}/layout"],
                       input=code, text=True, check=True)
        out = subprocess.run([f"{folder}/layout"], capture_output=True,
                             text=True, check=True).stdout
    return [int(line) for line in out.split()]


def compare(header, struct, fields):
    """What is not the same, in words."""
    names = declared(header, struct)
    for name in sorted(names ^ fields.keys()):
        yield f"{name} is in one of them only"
    both = sorted(names & fields.keys())
    numbers = compiled(header, [f"{what}(struct {struct}{dot}{name}{end}"
                                for name in both for what, dot, end in
                                (("offsetof", ", ", ")"),
                                 ("sizeof(((", " *)0)->", "))"))])
    for i, name in enumerate(both):
        offset, size = numbers[2 * i:2 * i + 2]
        want, bytes_ = fields[name]
        # of an array of structures the table has the size of one
        if offset != want or size % bytes_ or \
                (size != bytes_ and name not in ("gid", "node")):
            yield f"{name} is at {offset}, {size} bytes; " \
                  f"the document says {want}, {bytes_}"


def constants(text, header):
    """Numbers that the text has."""
    values = compiled(header, (
        "MIC_REGION_HDR", "sizeof(struct mic_region_node)",
        "sizeof(struct mic_region_channel)", "MIC_LANES",
        "MIC_REGION_VERSION", "MIC_REGION_GIDS", "MIC_MAP_SLOTS",
        "MIC_SLICE_TABLE", "MIC_REGION_NODES"))
    hdr, node, channel, lanes, version, gids, slots, table, nodes = values
    return [phrase for phrase in (
        f"| 0 | {hdr} | header |", f"| {hdr} | {node} × nodes | node table |",
        f"| {channel} × nodes² | channels;", f"| {lanes} × `lane_size` × nodes² |",
        f"| version | {version} |", f"at most {gids} |",
        f"{slots} entries for each of the {nodes} nodes", f"at {table},",
    ) if phrase not in text.replace("\n", " ")]


def report(number, name, wrong):
    print(f"{'not ' if wrong else ''}ok {number} - {name}")
    for line in wrong:
        print(f"# {line}")
    return bool(wrong)


def main():
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    with open(HEADER, encoding="utf-8") as file:
        header = file.read()
    failed = False
    for i, (mark, struct) in enumerate(TABLES):
        failed |= report(i + 1, struct, list(
            compare(header, struct, documented(text, mark))))
    failed |= report(len(TABLES) + 1, "numbers in the text",
                     [f"not there: {one}" for one in constants(text, header)])
    print(f"1..{len(TABLES) + 1}")
    return failed


sys.exit(main())
