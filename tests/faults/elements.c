// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Faults of one element of a list, behind others that are in order: of a request's data,
 * and of a receive. Nothing moves, not into the good ones either.
 */
#include <errno.h>
#include <string.h>

#include "faults.h"
#include "tap.h"

/* From one element to the next, in memory. */
#define STEP 100U

/* The same bytes, in @count elements with gaps between; the last one has the rest. */
static void split(const struct region *region, size_t offset, uint32_t bytes,
		  uint32_t part, struct ibv_sge *sges)
{
	int i;

	for (i = 0; i < ELEMENTS; i++, offset += STEP, bytes -= part)
		sges[i] = region_sge(region, offset,
				     i == ELEMENTS - 1 ? bytes : part);
}

static struct ibv_sge *of_request(struct scene *scene)
{
	uint32_t bytes = request_bytes(scene);

	split(&scene->setup->a_mem, TARGET_OFFSET, bytes, bytes / ELEMENTS,
	      scene->local);
	scene->local_count = ELEMENTS;
	return &scene->local[scene->element];
}

/* The message reaches into each of them. */
static struct ibv_sge *of_receive(struct scene *scene)
{
	split(&scene->setup->b_mem, RECEIVE_OFFSET, RECEIVE_BYTES,
	      BAD_BYTES / ELEMENTS, scene->receive);
	scene->receive_count = ELEMENTS;
	return &scene->receive[scene->element];
}

static void wrong_lkey(struct scene *scene)
{
	of_request(scene)->lkey ^= 0x00a5a500;
}

static void wrong_receive_lkey(struct scene *scene)
{
	of_receive(scene)->lkey ^= 0x00a5a500;
}

/* In a region that the case makes. */
static void move_to(struct scene *scene, struct ibv_sge *sge, struct ibv_pd *pd,
		    int access, size_t offset)
{
	extra_region(scene, pd, access);
	*sge = region_sge(&scene->extra, offset, sge->length);
}

static struct ibv_pd *other_pd(struct scene *scene, struct device *dev)
{
	scene->extra_pd = ibv_alloc_pd(dev->ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	return scene->extra_pd;
}

static void lkey_of_other_pd(struct scene *scene)
{
	move_to(scene, of_request(scene), other_pd(scene, &scene->setup->a_dev),
		ACCESS_ALL, 0);
}

static void receive_lkey_of_other_pd(struct scene *scene)
{
	move_to(scene, of_receive(scene), other_pd(scene, &scene->setup->b_dev),
		ACCESS_ALL, 0);
}

static void stale_lkey(struct scene *scene)
{
	move_to(scene, of_request(scene), scene->setup->a_dev.pd, ACCESS_ALL,
		0);
	tap_must(!ibv_dereg_mr(scene->extra.mr), "ibv_dereg_mr fails");
	scene->extra.mr = NULL;
}

static void lkey_read_only(struct scene *scene)
{
	move_to(scene, of_request(scene), scene->setup->a_dev.pd,
		IBV_ACCESS_REMOTE_READ, 0);
}

static void receive_read_only(struct scene *scene)
{
	move_to(scene, of_receive(scene), scene->setup->b_dev.pd,
		IBV_ACCESS_REMOTE_READ, 0);
}

static void below_local(struct scene *scene)
{
	move_to(scene, of_request(scene), scene->setup->a_dev.pd, ACCESS_ALL,
		-1);
}

static void across_local_end(struct scene *scene)
{
	move_to(scene, of_request(scene), scene->setup->a_dev.pd, ACCESS_ALL,
		REGION_BYTES - 1);
}

static void receive_outside(struct scene *scene)
{
	move_to(scene, of_receive(scene), scene->setup->b_dev.pd, ACCESS_ALL,
		REGION_BYTES - 1);
}

static void wrap_local(struct scene *scene)
{
	of_request(scene)->addr = UINT64_MAX;
}

/* Not faults: nothing is to be moved there. */
static void wrong_lkey_of_nothing(struct scene *scene)
{
	struct ibv_sge *sge = of_request(scene);

	scene->local[0].length += sge->length;
	sge->length = 0;
	sge->lkey ^= 0x00a5a500;
}

static void wrong_receive_lkey_behind(struct scene *scene)
{
	struct ibv_sge *sge = of_receive(scene);

	scene->receive[0].length = BAD_BYTES;
	sge->lkey ^= 0x00a5a500;
}

#define LOCAL LOCAL_PROTECTION, LOCAL_PROTECTION, NULL
#define RECEIVE RECEIVE_FAILS, NULL

static const struct fault rows[] = {
	{ "wrong lkey", ALL, wrong_lkey, LOCAL },
	{ "lkey of another PD", ALL, lkey_of_other_pd, LOCAL },
	{ "lkey of a deregistered MR", ALL, stale_lkey, LOCAL },
	{ "MR without local write", INWARD, lkey_read_only, LOCAL },
	{ "local address below the MR", ALL, below_local, LOCAL },
	{ "across the local MR's end", ALL, across_local_end, LOCAL },
	{ "local address that wraps around", ALL, wrap_local, LOCAL },
	{ "wrong lkey of no bytes", ALL, wrong_lkey_of_nothing, FINE, FINE,
	  NULL },
	{ "receive with a wrong lkey", SENDS, wrong_receive_lkey, RECEIVE },
	{ "receive with the lkey of another PD", SENDS,
	  receive_lkey_of_other_pd, RECEIVE },
	{ "receive into an MR without local write", SENDS, receive_read_only,
	  RECEIVE },
	{ "receive outside its MR", SENDS, receive_outside, RECEIVE },
	{ "receive with a wrong lkey behind the message", SENDS,
	  wrong_receive_lkey_behind, FINE, FINE, NULL },
};

const struct fault_table second_element_faults = {
	.faults = rows,
	.count = COUNT(rows),
	.services = BIT(SERVICES) - 1,
	.where = ", second element",
	.element = 1,
};

const struct fault_table last_element_faults = {
	.faults = rows,
	.count = COUNT(rows),
	.services = BIT(SERVICES) - 1,
	.where = ", last element",
	.element = ELEMENTS - 1,
};
