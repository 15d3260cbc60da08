# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What our own pyverbs tests start from: two devices, connected QPs."""
import glob
import os
import time
import unittest

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

SIZE = 4096
ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE |
          e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC)
PATIENCE = 30 * int(os.environ.get('MIC_SLOW', '1'))


def gid_index(name):
    """The index of the RoCE v2 GID of the device's IPv4 address."""
    port = f'/sys/class/infiniband/{name}/ports/1'
    for path in glob.glob(f'{port}/gids/*'):
        index = os.path.basename(path)
        try:
            with open(path, encoding='ascii') as gid, \
                 open(f'{port}/gid_attrs/types/{index}',
                      encoding='ascii') as kind:
                if ':ffff:' in gid.read() and 'v2' in kind.read():
                    return int(index)
        except OSError:
            pass  # no such GID
    raise RuntimeError(f'{name} has no IPv4 GID')


class Side:
    """A device with a PD, a CQ, memory, and an RC QP."""

    def __init__(self, name):
        self.name = name
        self.ctx = Context(name=name)
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 64)
        self.mr = MR(self.pd, SIZE, ACCESS)
        self.gid_index = gid_index(name)
        self.qp = self.make_qp()

    def make_qp(self, pd=None, depth=16, sges=1, srq=None):
        """A QP in RESET."""
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=sges,
                    max_recv_sge=sges)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq,
                          cap=cap, sq_sig_all=1, srq=srq)
        return QP(pd or self.pd, init)

    def connect(self, peer, access=ACCESS):
        """To RTS; the peer does the same."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = access  # for INIT, which is on the way
        attr.dest_qp_num = peer.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer = 12
        attr.retry_cnt = attr.rnr_retry = 7
        attr.timeout = 14
        attr.ah_attr = self.way(peer)
        self.qp.to_rts(attr)

    def way(self, peer):
        """The address of the peer."""
        gid = peer.ctx.query_gid(1, peer.gid_index)
        route = GlobalRoute(dgid=gid, sgid_index=self.gid_index)
        return AHAttr(port_num=1, is_global=1, gr=route)

    def sge(self, mr=None, length=8):
        """The first bytes of a region."""
        mr = mr or self.mr
        return SGE(mr.buf, length, mr.lkey)

    def post(self, opcode, sge=None, rkey=0, address=0):
        """A request of 8 bytes."""
        request = SendWR(opcode=opcode, num_sge=1, sg=[sge or self.sge()])
        request.set_wr_rdma(rkey, address)
        self.qp.post_send(request)

    def post_atomic(self, opcode, rkey, address, compare_add, swap=0):
        """An atomic; what was there before goes to the first bytes."""
        request = SendWR(opcode=opcode, num_sge=1, sg=[self.sge()])
        request.set_wr_atomic(rkey, address, compare_add, swap)
        self.qp.post_send(request)

    def receive(self, sge=None):
        """A receive of 8 bytes."""
        self.qp.post_recv(RecvWR(num_sge=1, sg=[sge or self.sge()]))

    def complete(self):
        """The status of the next completion."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            count, completions = self.cq.poll()
            if count:
                return completions[0].status
        raise TimeoutError(f'{self.name}: no completion')


class Pair(unittest.TestCase):
    """Tests with two connected QPs."""

    def setUp(self):
        self.here = Side(os.environ.get('MIC_TEST_DEVICE', 'mic0'))
        self.there = Side(os.environ.get('MIC_TEST_PEER', 'mic1'))
        self.connect()

    def connect(self, access=ACCESS):
        """Their queue pairs; access is what the other side lets this one do."""
        self.here.connect(self.there)
        self.there.connect(self.here, access)

    def again(self, access=ACCESS, srq=None):
        """With new queue pairs, after an error."""
        self.here.qp = self.here.make_qp()
        self.there.qp = self.there.make_qp(srq=srq)
        self.connect(access)

    def tearDown(self):
        for side in self.here, self.there:
            side.ctx.close()

    def write(self, rkey, address, sge=None):
        """The status of an RDMA WRITE."""
        self.here.post(e.IBV_WR_RDMA_WRITE, sge, rkey, address)
        return self.here.complete()

    def read(self, rkey, address, sge=None):
        """The status of an RDMA READ."""
        self.here.post(e.IBV_WR_RDMA_READ, sge, rkey, address)
        return self.here.complete()

    def atomic(self, rkey, address, opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD):
        """The status of an atomic that adds 1."""
        self.here.post_atomic(opcode, rkey, address, 1)
        return self.here.complete()

    def next_event(self, kind):
        """Waits for an asynchronous event of the other side."""
        found = None
        while found != kind:
            event = self.there.ctx.get_async_event()
            found = event.event_type
            event.ack()
