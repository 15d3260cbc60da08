// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Apertures: all memory of another machine, as a device.
 *
 * It looks like a region that nobody has formatted, so the administrator says which
 * devices are apertures. Whose memory one has, and what is where, is found by
 * beacons (beacon.c). That is looked for whenever a path comes up, since a machine
 * has other beacons each time it boots, and whenever there are other apertures.
 *
 * What another node grants of its memory comes as a list of extents, in terms of its
 * own addresses. It becomes a lease if all of it is within the memory of that node.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "path.h"

#define MIC_APERTURES		16

static char *mic_aperture_names[MIC_APERTURES];
static int mic_naperture_names;
module_param_array_named(apertures, mic_aperture_names, charp,
			 &mic_naperture_names, 0444);
MODULE_PARM_DESC(apertures,
		 "PCI addresses ([DOMAIN:]BUS:DEVICE.FUNCTION) of devices with all memory of another machine");

/* As sysfs has it, or without the domain, as lspci does. */
struct mic_aperture_name {
	unsigned int domain, bus, slot, func;
};

/**
 * struct mic_aperture - a device with another machine's memory
 * @pdev: PCI device
 * @entry: in the list of all, under mic_lease_lock
 * @mem: the memory
 * @phys: where it is
 * @size: bytes
 */
struct mic_aperture {
	struct pci_dev *pdev;
	struct list_head entry;
	void *mem;
	phys_addr_t phys;
	u64 size;
};

/* Both under mic_lease_lock. */
static LIST_HEAD(mic_apertures);
static LIST_HEAD(mic_aperture_paths);

/* Another number with each device that has come or gone; changed likewise. */
static u32 mic_aperture_changes;

/* Who reads the new number sees @mic_apertures as it is then, or newer. */
static void mic_aperture_changed(void)
{
	lockdep_assert_held(&mic_lease_lock);
	/* release: the list, then the number */
	smp_store_release(&mic_aperture_changes, mic_aperture_changes + 1);
}

/**
 * mic_has_apertures - has the administrator named some?
 *
 * Return: whether this node's memory is to be found by others, too.
 */
bool mic_has_apertures(void)
{
	return mic_naperture_names;
}

static bool mic_aperture_parse(const char *text, struct mic_aperture_name *name)
{
	char behind;

	*name = (struct mic_aperture_name){};
	if (sscanf(text, "%x:%x:%x.%x%c", &name->domain, &name->bus,
		   &name->slot, &name->func, &behind) != 4 &&
	    sscanf(text, "%x:%x.%x%c", &name->bus, &name->slot, &name->func,
		   &behind) != 3)
		return false;
	return name->bus <= 0xff && name->slot <= 0x1f && name->func <= 7;
}

/**
 * mic_aperture_names_check - are they PCI addresses?
 *
 * A device that was meant to be an aperture must not be taken for a region: who does
 * so writes into another machine's memory.
 *
 * Return: 0, or -EINVAL, and the log has which one is none.
 */
int mic_aperture_names_check(void)
{
	struct mic_aperture_name name;
	int i;

	for (i = 0; i < mic_naperture_names; i++) {
		if (mic_aperture_parse(mic_aperture_names[i], &name))
			continue;
		pr_err("mic_ivshmem: apertures: '%s' is no PCI address (0000:00:10.0)\n",
		       mic_aperture_names[i]);
		return -EINVAL;
	}
	return 0;
}

/**
 * mic_is_aperture - is a device one?
 * @pdev: device
 *
 * Return: whether the administrator says so.
 */
bool mic_is_aperture(const struct pci_dev *pdev)
{
	struct mic_aperture_name name;
	int i;

	for (i = 0; i < mic_naperture_names; i++)
		if (mic_aperture_parse(mic_aperture_names[i], &name) &&
		    name.domain == pci_domain_nr(pdev->bus) &&
		    name.bus == pdev->bus->number &&
		    PCI_DEVFN(name.slot, name.func) == pdev->devfn)
			return true;
	return false;
}

/**
 * mic_aperture_probe - memory that others may grant some of
 * @pdev: device
 *
 * Return: 0 or an error.
 */
int mic_aperture_probe(struct pci_dev *pdev)
{
	struct mic_aperture *ap;
	int err;

	ap = devm_kzalloc(&pdev->dev, sizeof(*ap), GFP_KERNEL);
	if (!ap)
		return -ENOMEM;
	err = pcim_enable_device(pdev);
	if (err)
		return err;
	ap->pdev = pdev;
	ap->phys = pci_resource_start(pdev, MIC_IVS_BAR_REGION);
	ap->size = pci_resource_len(pdev, MIC_IVS_BAR_REGION);
	if (ap->size < MIC_BEACON_STEP)
		return -EINVAL;
	if (!devm_request_mem_region(&pdev->dev, ap->phys, ap->size,
				     "mic_ivshmem aperture"))
		return -EBUSY;
	/* the mapping also makes processes' mappings cached ones */
	ap->mem = devm_memremap(&pdev->dev, ap->phys, ap->size, MEMREMAP_WB);
	if (IS_ERR(ap->mem))
		return PTR_ERR(ap->mem);
	pci_set_drvdata(pdev, ap);
	mutex_lock(&mic_lease_lock);
	list_add_tail(&ap->entry, &mic_apertures);
	mic_aperture_changed();
	mutex_unlock(&mic_lease_lock);
	dev_info(&pdev->dev, "an aperture of %llu MiB\n", ap->size >> 20);
	return 0;
}

/* What a path has found there it has not any more. */
static void mic_aperture_close(struct mic_path *path,
			       const struct mic_aperture *ap)
{
	int i;

	for (i = 0; i < MIC_REGION_BEACONS; i++)
		if (path->range[i].aperture == ap)
			path->range[i].aperture = NULL;
	mic_lease_take_away(path, ap->phys, ap->phys + ap->size);
}

/**
 * mic_aperture_remove - the device is going away
 * @pdev: device; on return nothing of it is mapped by processes
 */
void mic_aperture_remove(struct pci_dev *pdev)
{
	struct mic_aperture *ap = pci_get_drvdata(pdev);
	struct mic_path *path;

	mutex_lock(&mic_lease_lock);
	list_del(&ap->entry);
	mic_aperture_changed();
	list_for_each_entry(path, &mic_aperture_paths, aperture_entry)
		mic_aperture_close(path, ap);
	mutex_unlock(&mic_lease_lock);
}

/**
 * mic_aperture_add_path - a path that may lead to what an aperture shows
 * @path: path
 */
void mic_aperture_add_path(struct mic_path *path)
{
	mutex_lock(&mic_lease_lock);
	list_add_tail(&path->aperture_entry, &mic_aperture_paths);
	mutex_unlock(&mic_lease_lock);
}

/**
 * mic_aperture_del_path - the opposite
 * @path: path without thread
 */
void mic_aperture_del_path(struct mic_path *path)
{
	mutex_lock(&mic_lease_lock);
	list_del(&path->aperture_entry);
	mutex_unlock(&mic_lease_lock);
}

/*
 * A beacon at @at. What it says of the memory around it counts if that is within the
 * aperture.
 */
static bool mic_beacon_range(struct mic_aperture *ap, u64 at,
			     const struct mic_beacon *beacon,
			     struct mic_range *range)
{
	if (beacon->start > beacon->addr || beacon->end <= beacon->addr ||
	    !PAGE_ALIGNED(beacon->start | beacon->end) ||
	    beacon->addr - beacon->start > at ||
	    beacon->end - beacon->addr > ap->size - at)
		return false;
	*range = (struct mic_range) {
		.aperture = ap,
		.start = beacon->start,
		.end = beacon->end,
		.offset = at - (beacon->addr - beacon->start),
	};
	return true;
}

/* Does it say that the memory is of the node that the path leads to? */
static bool mic_beacon_is_of(const struct mic_beacon *beacon,
			     const struct mic_path *path)
{
	const struct mic_beacon_node *node;
	int i;

	for (i = 0; i < MIC_BEACON_NODES; i++) {
		node = &beacon->node[i];
		if (node->owner && node->owner == path->up_peer &&
		    node->region == path->ivs->id && node->slot == path->slot)
			return true;
	}
	return false;
}

/*
 * Memory begins at a multiple of the step both in the machine and in the aperture,
 * so that few pages have to be looked at.
 */
static bool mic_aperture_search(struct mic_aperture *ap,
				const struct mic_path *path, u64 addr,
				struct mic_range *range)
{
	u64 at = addr & (MIC_BEACON_STEP - 1);
	struct mic_beacon beacon;

	for (; at <= ap->size - PAGE_SIZE; at += MIC_BEACON_STEP) {
		memcpy(&beacon, ap->mem + at, sizeof(beacon));
		barrier();
		if (beacon.magic == MIC_BEACON_MAGIC &&
		    !memcmp(beacon.id, path->sought.id, sizeof(beacon.id)) &&
		    beacon.addr == addr && mic_beacon_is_of(&beacon, path) &&
		    mic_beacon_range(ap, at, &beacon, range))
			return true;
		cond_resched();
	}
	return false;
}

static void mic_aperture_find_one(const struct mic_path *path, u64 addr,
				  struct mic_range *range)
{
	struct mic_aperture *ap;

	*range = (struct mic_range) {};
	if (!addr || !PAGE_ALIGNED(addr))
		return;
	list_for_each_entry(ap, &mic_apertures, entry)
		if (mic_aperture_search(ap, path, addr, range))
			return;
}

/*
 * Nothing to be found, nor to be forgotten: without the lock, which is held while
 * processes lose what they have mapped. If there is an aperture after all, the number
 * is another one then, too.
 */
static bool mic_aperture_is_idle(struct mic_path *path)
{
	/* acquire: the number, then the list */
	u32 changes = smp_load_acquire(&mic_aperture_changes);

	if (READ_ONCE(path->reach) || !list_empty_careful(&mic_apertures))
		return false;
	path->apertures = changes;
	return true;
}

/* As the other node has it in its entry: one copy, which is then searched for. */
static void mic_aperture_read(const struct mic_path *path,
			      struct mic_sought *sought)
{
	memcpy(sought->id, path->entry->beacon_id, sizeof(sought->id));
	memcpy(sought->addr, path->entry->beacon, sizeof(sought->addr));
	barrier();
}

/* What is found stays, unless it is to be looked for @anew. */
static void mic_aperture_seek(struct mic_path *path, bool anew)
{
	bool reach = false;
	int i;

	path->sought_at = jiffies;
	if (mic_aperture_is_idle(path))
		return;
	mic_aperture_read(path, &path->sought);
	mutex_lock(&mic_lease_lock);
	path->apertures = mic_aperture_changes;
	for (i = 0; i < MIC_REGION_BEACONS; i++) {
		if (anew || !path->range[i].aperture)
			mic_aperture_find_one(path, path->sought.addr[i],
					      &path->range[i]);
		reach |= !!path->range[i].aperture;
	}
	WRITE_ONCE(path->reach, reach);
	mutex_unlock(&mic_lease_lock);
	if (reach)
		dev_info_ratelimited(&path->ivs->pdev->dev,
				     "the memory of node %u is in an aperture\n", path->slot);
}

/**
 * mic_aperture_find - look for the other node's memory
 * @path: path
 *
 * Context: the path's thread.
 */
void mic_aperture_find(struct mic_path *path)
{
	mic_aperture_seek(path, true);
}

/*
 * Something was not found, and something else is to be looked for: somebody had written
 * there. Once a second, for a look takes its time.
 */
static bool mic_aperture_is_misled(const struct mic_path *path)
{
	struct mic_sought now;
	bool misled = false;
	int i;

	if (list_empty_careful(&mic_apertures) ||
	    time_before(jiffies, path->sought_at + HZ))
		return false;
	mic_aperture_read(path, &now);
	for (i = 0; i < MIC_REGION_BEACONS; i++)
		misled |= !READ_ONCE(path->range[i].aperture) &&
			  (now.addr[i] != path->sought.addr[i] ||
			   memcmp(now.id, path->sought.id, sizeof(now.id)));
	return misled;
}

/**
 * mic_aperture_look - look again, if there are other apertures than before, or if the
 *	other node was looked for by what was not its own
 * @path: path
 *
 * Context: the path's thread.
 */
void mic_aperture_look(struct mic_path *path)
{
	if (path->apertures != READ_ONCE(mic_aperture_changes))
		mic_aperture_find(path);
	else if (mic_aperture_is_misled(path))
		mic_aperture_seek(path, false);
}

/* The first page here; false if it isn't all within the other node's memory. */
static bool mic_extent_pfn(const struct mic_path *path,
			   const struct mic_extent *extent, unsigned long *pfn)
{
	const struct mic_range *range;
	int i;

	for (i = 0; i < MIC_REGION_BEACONS; i++) {
		range = &path->range[i];
		if (!range->aperture || extent->addr < range->start ||
		    extent->addr >= range->end ||
		    extent->length > range->end - extent->addr)
			continue;
		*pfn = PHYS_PFN(range->aperture->phys + range->offset +
				(extent->addr - range->start));
		return true;
	}
	return false;
}

static bool mic_aperture_translate(const struct mic_path *path,
				   struct mic_lease *lease,
				   const struct mic_map *map)
{
	u64 left = map->length;
	u32 i;

	for (i = 0; i < map->extents->n; i++) {
		const struct mic_extent *extent = &map->extents->at[i];

		if (!PAGE_ALIGNED(extent->addr | extent->length) ||
		    !extent->length || extent->length > left ||
		    !mic_extent_pfn(path, extent, &lease->run[i].pfn))
			return false;
		left -= extent->length;
		lease->run[i].end = PHYS_PFN(map->length - left);
	}
	return !left;
}

/**
 * mic_aperture_lease - where what was granted is
 * @path: path to the node that has granted it
 * @lease: out
 * @map: what that node says
 *
 * Context: mic_lease_lock is held.
 * Return: 0, -ENOMEM, -EPROTO: not all of it is that node's memory.
 */
int mic_aperture_lease(const struct mic_path *path, struct mic_lease *lease,
		       const struct mic_map *map)
{
	u32 n = map->extents->n;

	lockdep_assert_held(&mic_lease_lock);
	lease->run = kvmalloc_array(n, sizeof(*lease->run),
				    GFP_KERNEL_ACCOUNT);
	if (!lease->run)
		return -ENOMEM;
	lease->nruns = n;
	return mic_aperture_translate(path, lease, map) ? 0 : -EPROTO;
}
