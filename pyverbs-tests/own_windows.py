# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Windows as SCIF has them: parts of a region with a key, rights and a life of
their own, and what is told by writing a number after the data."""
import errno
import time

import pyverbs.enums as e
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import SGE, SendWR

from fixture import ACCESS, PATIENCE, SIZE, Pair

READ = e.IBV_ACCESS_REMOTE_READ
WRITE = e.IBV_ACCESS_REMOTE_WRITE
ATOMIC = e.IBV_ACCESS_REMOTE_ATOMIC


class Windows(Pair):
    """Memory windows of both types."""

    def setUp(self):
        super().setUp()
        self.region = MR(self.there.pd, SIZE, ACCESS | e.IBV_ACCESS_MW_BIND)

    def show(self, offset, length, access, window=None):
        """A window of type 1, bound; who has the domain may use it."""
        window = window or MW(self.there.pd, e.IBV_MW_TYPE_1)
        part = MWBindInfo(self.region, self.region.buf + offset, length,
                          access)
        self.there.qp.bind_mw(window, MWBind(part, e.IBV_SEND_SIGNALED))
        self.assertEqual(e.IBV_WC_SUCCESS, self.there.complete())
        return window

    def bind(self, region, access=WRITE):
        """A window of type 2: the status of the bind, and the key."""
        window = MW(self.there.pd, e.IBV_MW_TYPE_2)
        request = SendWR(opcode=e.IBV_WR_BIND_MW)
        request.set_bind_wr(window, MWBindInfo(region, region.buf, SIZE,
                                               access))
        self.there.qp.post_send(request)
        return self.there.complete(), request.rkey, window

    def test_inside_and_outside(self):
        """All of the window is open, and not a byte around it."""
        window = self.show(1000, 2000, WRITE)
        key = window.rkey
        start = self.region.buf + 1000
        for address in start, start + 2000 - 8:
            self.assertEqual(e.IBV_WC_SUCCESS, self.write(key, address))
        for address in start - 1, start + 2000 - 7:
            self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                             self.write(key, address))
            self.again()

    def test_rights(self):
        """Each window has its own, whatever the region has."""
        address = self.region.buf
        for access, works in (READ, self.read), (WRITE, self.write), (
                ATOMIC, self.atomic):
            window = self.show(0, 64, access)
            key = window.rkey
            for attempt in self.read, self.write, self.atomic:
                expected = (e.IBV_WC_SUCCESS if attempt == works else
                            e.IBV_WC_REM_ACCESS_ERR)
                self.assertEqual(expected, attempt(key, address))
                if attempt != works:
                    self.again()

    def test_windows_overlap(self):
        """The same bytes: one may write them, another may read them."""
        writer, reader = self.show(0, 64, WRITE), self.show(8, 64, READ)
        address = self.region.buf + 8
        self.here.mr.write('in both!', 8)
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(writer.rkey, address))
        self.here.mr.write('nothing.', 8)
        self.assertEqual(e.IBV_WC_SUCCESS, self.read(reader.rkey, address))
        self.assertEqual(b'in both!', self.here.mr.read(8, 0))

    def test_window_moves(self):
        """Bound elsewhere it has a new key, and the old one is dead."""
        window = self.show(0, 64, WRITE)
        old = window.rkey
        self.show(2048, 64, WRITE, window)
        self.assertNotEqual(old, window.rkey)
        address = self.region.buf
        self.assertEqual(e.IBV_WC_SUCCESS,
                         self.write(window.rkey, address + 2048))
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(window.rkey, address))
        self.again()
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.write(old, address))

    def test_window_is_shut(self):
        """Bound to nothing, and freed."""
        window = self.show(0, 64, WRITE)
        old = window.rkey
        self.show(0, 0, 0, window)
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(old, self.region.buf))
        self.again()
        self.show(0, 64, WRITE, window)
        key = window.rkey
        window.close()
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(key, self.region.buf))

    def test_window_of_a_queue_pair(self):
        """One of type 2 opens for the queue pair that bound it, only."""
        status, key, _window = self.bind(self.region)
        self.assertEqual(e.IBV_WC_SUCCESS, status)
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(key, self.region.buf))
        keep = self.here.qp, self.there.qp
        self.again()
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(key, self.region.buf))
        self.here.qp, self.there.qp = keep
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(key, self.region.buf))

    def test_region_of_another_pd(self):
        """A window cannot open what its domain does not have."""
        other = MR(PD(self.there.ctx), SIZE, ACCESS | e.IBV_ACCESS_MW_BIND)
        self.assertEqual(e.IBV_WC_MW_BIND_ERR, self.bind(other)[0])

    def test_region_not_for_windows(self):
        """Nor what was not registered for windows."""
        self.assertEqual(e.IBV_WC_MW_BIND_ERR, self.bind(self.there.mr)[0])

    def test_no_more_than_the_region_may(self):
        """Nor give away what the region's owner cannot do himself."""
        narrow = MR(self.there.pd, SIZE, READ | e.IBV_ACCESS_MW_BIND)
        self.assertEqual(e.IBV_WC_MW_BIND_ERR, self.bind(narrow, WRITE)[0])

    def test_region_stays_while_shown(self):
        """Memory does not go from under a window."""
        window = self.show(0, 64, WRITE)
        with self.assertRaises(PyverbsRDMAError) as caught:
            self.region.close()
        self.assertEqual(errno.EBUSY, caught.exception.error_code)
        self.assertEqual(e.IBV_WC_SUCCESS,
                         self.write(window.rkey, self.region.buf))
        window.close()
        self.region.close()

    def test_shut_by_the_user(self):
        """Who has done with a window can shut it with a message."""
        _status, key, _window = self.bind(self.region)
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(key, self.region.buf))
        self.there.receive()
        request = SendWR(opcode=e.IBV_WR_SEND_WITH_INV)
        request.imm_data = key
        self.here.qp.post_send(request)
        self.assertEqual(e.IBV_WC_SUCCESS, self.here.complete())
        self.assertEqual(e.IBV_WC_SUCCESS, self.there.complete())
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(key, self.region.buf))


class Transfers(Pair):
    """What scif_writeto, scif_readfrom and a fence with a signal do."""

    def test_any_place(self):
        """Odd offsets and lengths, there and back; nothing else changes."""
        here, there = self.here.mr, self.there.mr
        for offset, length in (0, 1), (1, 7), (63, 65), (1000, 3001):
            data = ''.join(chr(97 + (i + offset) % 26) for i in range(length))
            there.write('.' * SIZE, SIZE)
            here.write(data, length)
            sge = SGE(here.buf, length, here.lkey)
            address = there.buf + offset
            self.assertEqual(e.IBV_WC_SUCCESS,
                             self.write(there.rkey, address, sge))
            self.assertEqual('.' * offset + data +
                             '.' * (SIZE - offset - length),
                             there.read(SIZE, 0).decode())
            here.write('-' * SIZE, SIZE)
            self.assertEqual(e.IBV_WC_SUCCESS,
                             self.read(there.rkey, address, sge))
            self.assertEqual(data + '-' * (SIZE - length),
                             here.read(SIZE, 0).decode())

    def test_signal_after_data(self):
        """Who sees the number sees what was written before it."""
        here, there = self.here.mr, self.there.mr
        end = time.monotonic() + PATIENCE
        for i in range(100):
            sign = f'{i:08}'
            here.write(sign * (SIZE // 8), SIZE)
            self.here.post(e.IBV_WR_RDMA_WRITE,
                           SGE(here.buf, SIZE - 8, here.lkey), there.rkey,
                           there.buf)
            self.here.post(e.IBV_WR_RDMA_WRITE,
                           SGE(here.buf, 8, here.lkey), there.rkey,
                           there.buf + SIZE - 8)
            while there.read(8, SIZE - 8).decode() != sign:
                self.assertLess(time.monotonic(), end)
            self.assertEqual(sign * (SIZE // 8 - 1),
                             there.read(SIZE - 8, 0).decode())
            for _ in range(2):
                self.assertEqual(e.IBV_WC_SUCCESS, self.here.complete())
