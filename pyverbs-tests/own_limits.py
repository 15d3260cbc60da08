# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What is promised can be had, and not more; and what is told of."""
import errno
import os
import select

import pyverbs.enums as e
from pyverbs.cq import CQ, CompChannel
from pyverbs.mr import MR
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

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

    def test_shared_receive_queue(self):
        """max_srq_wr receives and max_srq_sge elements, and no more."""
        attr = self.here.ctx.query_device()

        def make(receives, sges):
            SRQ(self.here.pd, SrqInitAttr(SrqAttr(
                max_wr=receives, max_sge=sges))).close()

        make(attr.max_srq_wr, 1)
        make(1, attr.max_srq_sge)
        self.refused(lambda: make(attr.max_srq_wr + 1, 1))
        self.refused(lambda: make(1, attr.max_srq_sge + 1))

    def test_send_queue_is_full(self):
        """As many requests as were asked for, and one more is refused."""
        for _ in range(16):  # of which none can end: there is no receive
            self.here.post(e.IBV_WR_SEND)
        with self.assertRaises(PyverbsRDMAError) as caught:
            self.here.post(e.IBV_WR_SEND)
        self.assertEqual(errno.ENOMEM, caught.exception.error_code)
        for _ in range(16):
            self.there.receive()
        self.assertEqual([e.IBV_WC_SUCCESS] * 16,
                         [self.here.complete() for _ in range(16)])

    def test_receive_queue_is_full(self):
        """Likewise."""
        for _ in range(16):
            self.there.receive()
        with self.assertRaises(PyverbsRDMAError) as caught:
            self.there.receive()
        self.assertEqual(errno.ENOMEM, caught.exception.error_code)

    def test_too_many_elements(self):
        """A queue pair for one element takes no list of two."""
        two = [self.here.sge(), self.here.sge()]
        self.refused(lambda: self.here.qp.post_send(
            SendWR(opcode=e.IBV_WR_SEND, num_sge=2, sg=two)))
        self.refused(lambda: self.here.qp.post_recv(
            RecvWR(num_sge=2, sg=two)))

    def test_too_much_inline(self):
        """Inline data has its limit."""
        mr = MR(self.here.pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
        request = SendWR(opcode=e.IBV_WR_SEND, num_sge=1,
                         sg=[SGE(mr.buf, SIZE, mr.lkey)],
                         send_flags=e.IBV_SEND_INLINE)
        self.refused(lambda: self.here.qp.post_send(request))

    def test_reads_under_way(self):
        """max_qp_rd_atom, and no more."""
        most = self.here.ctx.query_device().max_qp_rd_atom

        def to_rts(reads):
            self.here.qp = self.here.make_qp()
            attr = QPAttr(port_num=1)
            attr.dest_qp_num = self.there.qp.qp_num
            attr.path_mtu = e.IBV_MTU_1024
            attr.max_rd_atomic = reads
            attr.max_dest_rd_atomic = 1
            attr.ah_attr = self.here.way(self.there)
            self.here.qp.to_rts(attr)

        to_rts(most)
        self.refused(lambda: to_rts(most + 1))

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
        self.next_event(e.IBV_EVENT_QP_ACCESS_ERR)

    def test_invalid_request(self):
        """And of a request that makes no sense."""
        self.assertEqual(e.IBV_WC_REM_INV_REQ_ERR,
                         self.atomic(self.there.mr.rkey,
                                     self.there.mr.buf + 4))
        self.next_event(e.IBV_EVENT_QP_REQ_ERR)

    def shared(self, receives):
        """New queue pairs; the other side's takes from a shared queue."""
        srq = SRQ(self.there.pd, SrqInitAttr(SrqAttr(max_wr=16)))
        self.again(srq=srq)
        for _ in range(receives):
            srq.post_recv(RecvWR(num_sge=1, sg=[self.there.sge()]))
        return srq

    def test_few_receives_left(self):
        """A shared queue tells when it falls below its limit."""
        srq = self.shared(4)
        srq.modify(SrqAttr(srq_limit=3), e.IBV_SRQ_LIMIT)
        for _ in range(2):
            self.here.post(e.IBV_WR_SEND)
            self.assertEqual(e.IBV_WC_SUCCESS, self.here.complete())
        self.next_event(e.IBV_EVENT_SRQ_LIMIT_REACHED)
        self.assertEqual(0, srq.query().srq_limit)

    def test_last_receive(self):
        """In error, a queue pair takes no more from a shared queue."""
        self.shared(4)
        self.there.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        self.next_event(e.IBV_EVENT_QP_LAST_WQE_REACHED)

    def test_queue_overflows(self):
        """A completion queue that nobody empties."""
        side = self.there
        side.cq = CQ(side.ctx, 2)
        side.qp = side.make_qp()
        self.here.qp = self.here.make_qp()
        self.connect()
        for _ in range(3):
            side.receive()
            self.here.post(e.IBV_WR_SEND)
        self.next_event(e.IBV_EVENT_CQ_ERR)

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
