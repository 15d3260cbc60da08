# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What is promised can be had, and not more; and what is told of."""
import errno
import os
import select

import pyverbs.enums as e
from pyverbs.cq import CQ, CompChannel
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import SendWR

from fixture import SIZE, Pair

BYTES_8 = 1 << 1  # IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP


QUIET = 0.2  # seconds without an event are none


def event_files():
    """The descriptors of this process that events come by."""
    found = set()
    for name in os.listdir('/proc/self/fd'):
        try:
            if 'infinibandevent' in os.readlink(f'/proc/self/fd/{name}'):
                found.add(int(name))
        except FileNotFoundError:
            pass  # what the folder itself was read by
    return found


class Limits(Pair):
    """The device's attributes."""

    def refused(self, make):
        """EINVAL, at once."""
        with self.assertRaises(PyverbsRDMAError) as caught:
            make()
        self.assertEqual(errno.EINVAL, caught.exception.error_code)

    def test_completion_queue(self):
        """max_cqe entries, and no more."""
        most = self.here.ctx.query_device().max_cqe
        with CQ(self.here.ctx, most) as queue:
            self.assertGreaterEqual(queue.cqe, most)
        self.refused(lambda: CQ(self.here.ctx, most + 1))

    def test_queue_pair(self):
        """max_qp_wr requests and max_sge elements, and no more."""
        attr = self.here.ctx.query_device()
        self.here.make_qp(depth=attr.max_qp_wr).close()
        self.here.make_qp(sges=attr.max_sge).close()
        self.refused(lambda: self.here.make_qp(depth=attr.max_qp_wr + 1))
        self.refused(lambda: self.here.make_qp(sges=attr.max_sge + 1))

    def test_atomics_are_seen(self):
        """UCX 1.13 takes IBV_ATOMIC_GLOB for no atomics at all."""
        attr = self.here.ctx.query_device_ex()
        self.assertEqual(e.IBV_ATOMIC_HCA, attr.orig_attr.atomic_caps)
        self.assertEqual(BYTES_8, attr.pci_atomic_caps.fetch_add)
        self.assertEqual(BYTES_8, attr.pci_atomic_caps.compare_swap)


class Events(Pair):
    """What a program is woken for."""

    def test_access_error(self):
        """The responder hears of a key that opens nothing."""
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.write(0, 0))
        kinds = set()
        while e.IBV_EVENT_QP_ACCESS_ERR not in kinds:
            event = self.there.ctx.get_async_event()
            kinds.add(event.event_type)
            event.ack()

    def test_solicited_only(self):
        """A message that asks for no event raises none, the next one does."""
        others = event_files()
        channel = CompChannel(self.there.ctx)
        file, = event_files() - others
        self.there.cq = CQ(self.there.ctx, 16, None, channel)
        self.there.qp = self.there.make_qp()
        self.here.qp = self.here.make_qp()
        self.here.connect(self.there)
        self.there.connect(self.here)
        self.there.cq.req_notify(solicited_only=True)
        for flags in 0, e.IBV_SEND_SOLICITED:
            self.assertEqual([], select.select([file], [], [], QUIET)[0])
            self.there.receive()
            send = SendWR(opcode=e.IBV_WR_SEND, num_sge=1,
                          sg=[self.here.sge()], send_flags=flags |
                          e.IBV_SEND_SIGNALED)
            self.here.qp.post_send(send)
            self.assertEqual(e.IBV_WC_SUCCESS, self.here.complete())
            self.assertEqual(e.IBV_WC_SUCCESS, self.there.complete())
        channel.get_cq_event(self.there.cq)
        self.there.cq.ack_events(1)
        self.assertEqual([], select.select([file], [], [], QUIET)[0])

    def test_flush(self):
        """A queue pair in error gives back what was posted."""
        for _ in range(3):
            self.there.receive()
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(self.there.mr.rkey,
                                    self.there.mr.buf + SIZE))
        self.assertEqual([e.IBV_WC_WR_FLUSH_ERR] * 3,
                         [self.there.complete() for _ in range(3)])
