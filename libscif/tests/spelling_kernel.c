// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A program with the names of the header that was proposed for the kernel.
 * Only compiled.
 */
#include <assert.h> /* static_assert, which C++ has anyway */
#include <scif.h>

static_assert(sizeof(struct scif_port_id) == 4, "node and port");
static_assert(sizeof(struct scif_pollepd) == sizeof(struct pollfd),
	      "the layout of pollfd");
static_assert(SCIF_FENCE_RAS_SELF == 4 && SCIF_FENCE_RAS_PEER == 8 &&
		      SCIF_SIGNAL_LOCAL == 0x10 && SCIF_SIGNAL_REMOTE == 0x20,
	      "flags of fences");
static_assert(SCIF_RMA_USECPU == 1 && SCIF_RMA_USECACHE == 2 &&
		      SCIF_RMA_SYNC == 4 && SCIF_RMA_ORDERED == 8,
	      "flags of copies");
static_assert(SCIF_MAP_FIXED == 0x10 && SCIF_MAP_KERNEL == 0x20 &&
		      SCIF_PROT_READ == 1 && SCIF_PROT_WRITE == 2,
	      "flags of windows");
static_assert(SCIF_ADMIN_PORT_END == 1024 && SCIF_PORT_RSVD == 1088, "ports");

int main(void)
{
	struct scif_port_id port;
	uint16_t nodes[4], self;
	int epd = scif_open();

	if (epd < 0 || scif_get_node_ids(nodes, 4, &self) < 1)
		return 1;
	port.node = self;
	port.port = 2000;
	scif_connect(epd, &port);
	return scif_close(epd);
}
