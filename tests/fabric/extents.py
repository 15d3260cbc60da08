# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""For forge.py: memory of this machine that node 0 has an aperture on, and lists of
where it is that are not true.

The beacons are this process's, in the same way as the driver would have them: one for
each of two pieces of memory, of which the second begins where the first one ends.
"""

import ctypes
import mmap
import random
import struct

PAGE = 4096
PAGES = 16
OWNER = 12345
BEACON = struct.Struct("<8s16sQQQ")
ENTRY = struct.Struct("<4I")
EXTENT = struct.Struct("<QQ")
MOST = 2048
TOLD = 0x5c


class Memory:
    """Pages that stay where they are, with their addresses, in order."""

    def __init__(self):
        self.map = mmap.mmap(-1, PAGES * PAGE,
                             mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.map[:] = bytes((TOLD,)) * (PAGES * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlock(ctypes.c_void_p(start), ctypes.c_size_t(PAGES * PAGE)):
            raise OSError(ctypes.get_errno(), "mlock")
        with open("/proc/self/pagemap", "rb") as file:
            file.seek(start // PAGE * 8)
            words = struct.unpack(f"<{PAGES}Q", file.read(PAGES * 8))
        self.pages = sorted(((word & (1 << 55) - 1) * PAGE, number)
                            for number, word in enumerate(words))

    def beacon(self, which, name, start, end, node):
        addr, number = self.pages[which]
        at = number * PAGE
        self.map[at:at + PAGE] = bytes(PAGE)
        ENTRY.pack_into(self.map, at + 48, *node, 0)
        BEACON.pack_into(self.map, at, b"mic-beac", name, addr, start, end)
        return addr

    def publish(self, region, entry, slot):
        """Before the heart beats."""
        name = random.randbytes(16)
        node = OWNER, region.read(28, 4), slot
        first, middle, end = self.bounds()
        region.mem[entry + 72:entry + 88] = name
        region.write(entry + 88, 8, self.beacon(0, name, first, middle, node))
        region.write(entry + 96, 8, self.beacon(-1, name, middle, end, node))

    def bounds(self):
        """Where the one piece begins, the other, and that one ends."""
        return self.pages[0][0], self.pages[-1][0], self.pages[-1][0] + PAGE

    def good(self, number):
        """A page that node 0 may have."""
        return self.pages[1 + number][0]


# What is said of two pages. All of it is this node's, so twice the same is none of node
# 0's business.
LISTS = {
    "two": lambda m: ((m.good(0), PAGE), (m.good(1), PAGE)),
    "same": lambda m: ((m.good(0), PAGE), (m.good(0), PAGE)),
    "few": lambda m: ((m.good(0), PAGE),),
    "more": lambda m: ((m.good(0), PAGE), (m.good(1), PAGE), (m.good(2), PAGE)),
    "none": lambda m: ((m.good(0), PAGE), (m.good(1), 0), (m.good(2), PAGE)),
    "empty": lambda m: ((m.good(0), 0), (m.good(1), 0)),
    "odd": lambda m: ((m.good(0) + 8, PAGE), (m.good(1), PAGE)),
    "bytes": lambda m: ((m.good(0), PAGE - 8), (m.good(1), PAGE + 8)),
    "wrap": lambda m: ((m.good(0), PAGE), ((1 << 64) - PAGE, PAGE)),
    "around": lambda m: ((m.good(0), (1 << 64) - PAGE), (m.good(1), 3 * PAGE)),
    "huge": lambda m: ((m.good(0), 1 << 62), (m.good(1), PAGE)),
    "before": lambda m: ((m.good(0), PAGE), (m.bounds()[0] - PAGE, PAGE)),
    "behind": lambda m: ((m.good(0), PAGE), (m.bounds()[2], PAGE)),
    "both": lambda m: ((m.bounds()[1] - PAGE, 2 * PAGE),),
    "across": lambda m: ((m.bounds()[1], 2 * PAGE),),
    "most": lambda m: ((m.good(0), PAGE),) * MOST,
    "too-many": lambda m: ((m.good(0), PAGE),) * (MOST + 1),
}

# Others are of what carries the list. Some of them make no sense to any kernel.
SHAPES = ("half", "again", "behind-record")
NONSENSE = ("again", "behind-record")


def tell(peer, record, lie, values):
    """Answers a request for a window with a list."""
    extents = LISTS["two" if lie in SHAPES else lie](peer.memory)
    data = b"".join(EXTENT.pack(*extent) for extent in extents)
    if lie == "half":
        peer.answer(record, data=data[:-8], **values)
    elif lie == "behind-record":
        peer.answer(record, data=data, payload=len(data) + 64, **values)
    else:
        if lie == "again":
            peer.answer(record, data=data, flags=0, **values)
        peer.answer(record, data=data, **values)
