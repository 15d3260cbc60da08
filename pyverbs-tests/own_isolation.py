# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Keys open what they are for, to whom they are for, while they exist."""
import pyverbs.enums as e
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.wr import SendWR

from fixture import ACCESS, SIZE, Pair


class Isolation(Pair):
    """Protection domains, rights, contexts."""

    def test_works(self):
        """Else the refusals would prove nothing."""
        self.here.mr.write('abcdefgh', 8)
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(self.there.mr.rkey,
                                                      self.there.mr.buf))
        self.assertEqual(b'abcdefgh', self.there.mr.read(8, 0))

    def test_rkey_of_another_pd(self):
        """The responder's QP and region have to be of one domain."""
        other = MR(PD(self.there.ctx), SIZE, ACCESS)
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(other.rkey, other.buf))

    def test_lkey_of_another_pd(self):
        """So have the requester's."""
        other = MR(PD(self.here.ctx), SIZE, ACCESS)
        status = self.write(self.there.mr.rkey, self.there.mr.buf,
                            self.here.sge(other))
        self.assertEqual(e.IBV_WC_LOC_PROT_ERR, status)

    def test_rkey_of_another_context(self):
        """A key of another opening of the device is nobody's."""
        other = MR(PD(Context(name=self.there.name)), SIZE, ACCESS)
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(other.rkey, other.buf))

    def test_lkey_is_no_rkey_without_rights(self):
        """Local rights give the peer nothing."""
        local = MR(self.there.pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(local.rkey, local.buf))

    def test_one_byte_too_far(self):
        """A region ends where it ends."""
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(self.there.mr.rkey,
                                    self.there.mr.buf + SIZE - 7))

    def test_guessed_key(self):
        """The variant of a key counts."""
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(self.there.mr.rkey ^ 1,
                                    self.there.mr.buf))


    def test_receive_of_another_pd(self):
        """Nor can a receive put data elsewhere."""
        other = MR(PD(self.there.ctx), SIZE, ACCESS)
        self.there.receive(self.there.sge(other))
        self.here.post(e.IBV_WR_SEND)
        self.assertEqual(e.IBV_WC_REM_OP_ERR, self.here.complete())
        self.assertEqual(e.IBV_WC_LOC_PROT_ERR, self.there.complete())

    def test_address_that_wraps(self):
        """The last bytes there are, and beyond."""
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR,
                         self.write(self.there.mr.rkey, 2 ** 64 - 4))

    def test_read_only_region(self):
        """What may be read only, only may be read."""
        mr = MR(self.there.pd, SIZE, e.IBV_ACCESS_REMOTE_READ)
        self.assertEqual(e.IBV_WC_SUCCESS, self.read(mr.rkey, mr.buf))
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.write(mr.rkey, mr.buf))
        self.again()
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.atomic(mr.rkey, mr.buf))

    def test_region_without_atomics(self):
        """Reading and writing is not counting."""
        mr = MR(self.there.pd, SIZE, ACCESS & ~e.IBV_ACCESS_REMOTE_ATOMIC)
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(mr.rkey, mr.buf))
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.atomic(mr.rkey, mr.buf))

    def test_queue_pair_without_rights(self):
        """A queue pair can be narrower than the region behind it."""
        rkey, address = self.there.mr.rkey, self.there.mr.buf
        self.again(e.IBV_ACCESS_REMOTE_WRITE)
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(rkey, address))
        self.assertEqual(e.IBV_WC_REM_INV_REQ_ERR, self.read(rkey, address))
        self.again(e.IBV_ACCESS_REMOTE_READ)
        self.assertEqual(e.IBV_WC_SUCCESS, self.read(rkey, address))
        self.assertEqual(e.IBV_WC_REM_INV_REQ_ERR, self.write(rkey, address))


class Revocation(Pair):
    """What was granted and is not any more."""

    def test_region_is_deregistered(self):
        """Its key is dead at once."""
        gone = MR(self.there.pd, SIZE, ACCESS)
        rkey, address = gone.rkey, gone.buf
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(rkey, address))
        gone.close()
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.write(rkey, address))

    def test_region_moves(self):
        """Reregistered elsewhere, a key shows nothing of the old place."""
        old, new = self.there.mr, MR(self.there.pd, SIZE, ACCESS)
        old.write('old data', 8)
        new.write('new data', 8)
        rkey, address = old.rkey, old.buf
        self.assertEqual(e.IBV_WC_SUCCESS, self.read(rkey, address))
        self.assertEqual(b'old data', self.here.mr.read(8, 0))
        old.rereg(flags=e.IBV_REREG_MR_CHANGE_TRANSLATION, pd=None,
                  addr=new.buf, length=SIZE, access=0)
        self.assertEqual(e.IBV_WC_SUCCESS, self.read(old.rkey, new.buf))
        self.assertEqual(b'new data', self.here.mr.read(8, 0))
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.read(rkey, address))

    def test_region_changes_domain(self):
        """The queue pair's domain is no longer the region's."""
        mr, other = self.there.mr, PD(self.there.ctx)
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(mr.rkey, mr.buf))
        mr.rereg(flags=e.IBV_REREG_MR_CHANGE_PD, pd=other, addr=0, length=0,
                 access=0)
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.write(mr.rkey, mr.buf))

    def test_owner_is_gone(self):
        """With the other side's context all it granted is gone."""
        rkey, address = self.there.mr.rkey, self.there.mr.buf
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(rkey, address))
        self.there.ctx.close()
        self.assertEqual(e.IBV_WC_RETRY_EXC_ERR, self.write(rkey, address))

    def test_region_loses_a_right(self):
        """Reregistration takes effect for keys that others know."""
        mr = self.there.mr
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(mr.rkey, mr.buf))
        mr.rereg(flags=e.IBV_REREG_MR_CHANGE_ACCESS, pd=None, addr=0,
                 length=0, access=e.IBV_ACCESS_LOCAL_WRITE |
                 e.IBV_ACCESS_REMOTE_READ)
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.write(mr.rkey, mr.buf))

    def test_window_is_invalidated(self):
        """A window of type 2 opens, and shuts."""
        mr = MR(self.there.pd, SIZE, ACCESS | e.IBV_ACCESS_MW_BIND)
        window = MW(self.there.pd, e.IBV_MW_TYPE_2)
        bind = SendWR(opcode=e.IBV_WR_BIND_MW)
        bind.set_bind_wr(window, MWBindInfo(mr, mr.buf, SIZE,
                                            e.IBV_ACCESS_REMOTE_WRITE))
        self.there.qp.post_send(bind)
        self.assertEqual(e.IBV_WC_SUCCESS, self.there.complete())
        rkey = bind.rkey
        self.assertEqual(e.IBV_WC_SUCCESS, self.write(rkey, mr.buf))
        invalidate = SendWR(opcode=e.IBV_WR_LOCAL_INV)
        invalidate.imm_data = rkey
        self.there.qp.post_send(invalidate)
        self.assertEqual(e.IBV_WC_SUCCESS, self.there.complete())
        self.assertEqual(e.IBV_WC_REM_ACCESS_ERR, self.write(rkey, mr.buf))
