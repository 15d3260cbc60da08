#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Does Documentation/fabric.md say of the region what kernel/ivshmem/layout.h does?

Each table of fields in the one is compared with the offsets and sizes that the
compiler gives the other, and each field of the other must be in a table. The table of
numbers is compared with what kernel/ivshmem/wire.h says that the enums have, and all
of their names that go through the region must be there.
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../lib"))
import layouts  # noqa: E402 pylint: disable=wrong-import-position

DOCUMENT = "Documentation/fabric.md"
HEADER = "kernel/ivshmem/layout.h"
WIRE = "kernel/ivshmem/wire.h"
OP = "kernel/include/mic/op.h"
SHARE = "kernel/include/mic/share.h"

# What comes before each table, and the structure it is about.
TABLES = (
    ("### Header", "mic_region_hdr"),
    ("### Node table", "mic_region_node"),
    ("### Channels", "mic_region_channel"),
    ("### Lanes", "mic_rec"),
    ("A **request**", "mic_rec_request"),
    ("A **response**", "mic_rec_response"),
    ("An **extent**", "mic_extent"),
    ("A **frame**", "mic_rec_frame"),
    ("### Slices", "mic_region_map"),
    ("A **beacon**", "mic_beacon"),
)

# Arrays of structures, and how many each has.
ARRAYS = {"gid": 56, "node": 8}

# The enums that go through the region, and of them what does not.
ENUMS = ("mic_rec_type", "mic_rec_flags", "mic_op_code", "mic_op_flags", "mic_ack")
INSIDE = {"MIC_REC_FLAGS", "MIC_ACK_PENDING", "MIC_ACK_AGAIN"}

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


def part(header, what):
    """What a structure or an enum consists of."""
    return re.search(rf"\n{what} {{\n(.*?)\n}};", header, re.S).group(1)


def gathered():
    """What goes through the region, from all headers that have some of it."""
    header, op, share = layouts.read(HEADER), layouts.read(OP), layouts.read(SHARE)
    parts = [f"enum {name} {{\n{part(op, f'enum {name}')}\n}};"
             for name in ENUMS if f"\nenum {name} {{" in op]
    parts.append(f"struct mic_extent {{\n{part(share, 'struct mic_extent')}\n}};")
    parts += re.findall(r"^#define MIC_(?:EXTENTS_MAX|MAP_EXTENTS)\b.*", op + share, re.M)
    return "\n".join([header, *parts, ""])


def rows(text, mark, head="| offset"):
    """The cells of the table behind a line that begins with a mark."""
    lines = text[text.index("\n" + mark):].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(head))
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            break
        yield [cell.strip() for cell in line.strip("|").split("|")]


def documented(text, mark):
    """
    name: (offset, bytes) of each field; what is 0 has no name. And [offset, bytes, name]
    of each row.
    """
    fields, spans = {}, []
    for offset, kind, name, *_ in rows(text, mark):
        word, length, each, times = TYPE.match(kind).groups()
        size = int(each) if each else BITS[word] * int(length or 1)
        names = name.split(", ") if times else [name.split(",")[0]]
        if len(names) != int(times or 1):
            sys.exit(f"{mark}: {kind} for {name}")
        for i, one in enumerate(names):
            if one not in ("", "0"):
                fields[one] = (int(offset) + i * size, size)
        spans.append([int(offset), size * len(names), names[0]])
    return fields, spans


def declared(header, struct):
    """The names of a structure's fields, without what is 0."""
    body = part(header, f"struct {struct}")
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    names = re.findall(r"(\w+)(?:\[\w+\])?;", body)
    return {name for name in names if not re.match(r"zero\d*$|rec$", name)}


def compiled(header, expressions):
    """What the compiler makes of expressions."""
    return layouts.compiled(PRELUDE + re.sub(r"#include.*", "", header), expressions)


def gaps(spans, total):
    """Bytes of a structure that no row is about, in words."""
    at = 0
    for offset, size, name in spans:
        # of an array of structures the table has one
        if name in ARRAYS:
            size *= ARRAYS[name]
        if offset != at:
            yield f"nothing is said of the bytes from {at} to {offset}"
        at = offset + size
    if at != total:
        yield f"the rows end at {at}, the structure at {total}"


def compare(header, struct, fields, spans):
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
                (size != bytes_ and name not in ARRAYS):
            yield f"{name} is at {offset}, {size} bytes; " \
                  f"the document says {want}, {bytes_}"
    # that of a record is behind what all records begin with
    rec = [[0, 16, "rec"]] if struct.startswith("mic_rec_") else []
    yield from gaps(rec + spans, *compiled(header, [f"sizeof(struct {struct})"]))


def constants(text, header):
    """Numbers that the text has."""
    values = compiled(header, (
        "MIC_REGION_HDR", "sizeof(struct mic_region_node)",
        "sizeof(struct mic_region_channel)", "MIC_LANES",
        "MIC_REGION_VERSION", "MIC_REGION_GIDS", "MIC_MAP_SLOTS",
        "MIC_SLICE_TABLE", "MIC_REGION_NODES", "MIC_LANE_REQUEST",
        "MIC_LANE_RESPONSE", "MIC_LANE_FRAME", "sizeof(struct mic_rec_request)",
        "sizeof(struct mic_rec_response)", "sizeof(struct mic_rec_frame)",
        "MIC_EXTENTS_MAX", "MIC_REGION_ALIGN"))
    hdr, node, channel, lanes, version, gids, slots, table, nodes = values[:9]
    request, response, frame, asks, answers, carries, extents, align = values[9:]
    return [phrase for phrase in (
        f"| 0 | {hdr} | header |", f"| {hdr} | {node} × nodes | node table |",
        f"| {channel} × nodes² | channels;", f"| {lanes} × `lane_size` × nodes² |",
        f"| version | {version} |", f"at most {gids} |",
        f"{slots} entries for each of the {nodes} nodes", f"at {table},",
        f"Lane {request} carries requests, {response} responses, {frame} Ethernet",
        f"**request** has a header of {asks} bytes",
        f"**response** has a header of {answers} bytes",
        f"**frame** has a header of {carries} bytes",
        f"behind its header, up to {extents}.", f"multiples of {align},",
    ) if phrase not in text.replace("\n", " ")]


def numbers(text, header):
    """What is not the same of document, asserted values and enums, in words."""
    said = {name: int(value) for row in rows(text, "#### Numbers", "| field")
            for value, name in re.findall(r"(\d+) `(\w+)`", row[1])}
    held = {name: int(value) for name, value in
            re.findall(r"static_assert\((\w+) == (\d+)\);", layouts.read(WIRE))}
    for name in sorted(said.keys() | held.keys()):
        if said.get(name) != held.get(name):
            yield f"{name} is {held.get(name)} in {WIRE}; " \
                  f"the document says {said.get(name)}"
    enums = [name for one in ENUMS for name in
             re.findall(r"^\t(\w+)", part(header, f"enum {one}"), re.M)]
    for name in sorted(set(enums) - INSIDE - said.keys()):
        yield f"{name} is not in the document"
    # the others are the kernel's, which is not here
    ours = sorted(name for name in said if name.startswith("MIC_"))
    for name, value in zip(ours, compiled(header, ours)):
        if value != said[name]:
            yield f"{name} is {value}; the document says {said[name]}"


def main():
    text = layouts.read(DOCUMENT)
    header = gathered()
    results = [(struct, list(compare(header, struct, *documented(text, mark))))
               for mark, struct in TABLES]
    results.append(("numbers in the text",
                    [f"not there: {one}" for one in constants(text, header)]))
    results.append(("numbers with a name", list(numbers(text, header))))
    return layouts.report(results)


sys.exit(main())
