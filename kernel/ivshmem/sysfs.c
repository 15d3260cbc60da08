// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What programs ask of a region: /sys/bus/pci/devices/.../fabric.
 */
#include <linux/sysfs.h>

#include "path.h"

static ssize_t node_show(struct device *dev, struct device_attribute *attr,
			 char *buf)
{
	struct mic_ivs *ivs = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%u\n", ivs->slot);
}
static DEVICE_ATTR_RO(node);

/* Numbers in a row, with spaces between them. */
static ssize_t mic_ivs_emit(char *buf, const unsigned long *nodes)
{
	ssize_t len = 0;
	u32 i;

	for_each_set_bit(i, nodes, MIC_REGION_NODES)
		len += sysfs_emit_at(buf, len, "%s%u", len ? " " : "", i);
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t nodes_show(struct device *dev, struct device_attribute *attr,
			  char *buf)
{
	struct mic_ivs *ivs = dev_get_drvdata(dev);
	DECLARE_BITMAP(nodes, MIC_REGION_NODES) = {};
	u32 i;

	if (READ_ONCE(ivs->term))
		__set_bit(ivs->slot, nodes);
	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i] && READ_ONCE(ivs->path[i]->up))
			__set_bit(i, nodes);
	return mic_ivs_emit(buf, nodes);
}
static DEVICE_ATTR_RO(nodes);

static ssize_t apertures_show(struct device *dev, struct device_attribute *attr,
			      char *buf)
{
	struct mic_ivs *ivs = dev_get_drvdata(dev);
	DECLARE_BITMAP(nodes, MIC_REGION_NODES) = {};
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i] && READ_ONCE(ivs->path[i]->up) &&
		    READ_ONCE(ivs->path[i]->reach))
			__set_bit(i, nodes);
	return mic_ivs_emit(buf, nodes);
}
static DEVICE_ATTR_RO(apertures);

static struct attribute *mic_ivs_attrs[] = {
	&dev_attr_node.attr,
	&dev_attr_nodes.attr,
	&dev_attr_apertures.attr,
	NULL
};

/* An aperture's device has none. */
static umode_t mic_ivs_attr_visible(struct kobject *kobj,
				    struct attribute *attr, int n)
{
	return mic_is_aperture(to_pci_dev(kobj_to_dev(kobj))) ? 0 : attr->mode;
}

static const struct attribute_group mic_ivs_group = {
	.name = "fabric",
	.attrs = mic_ivs_attrs,
	.is_visible = mic_ivs_attr_visible,
};

const struct attribute_group *mic_ivs_groups[] = { &mic_ivs_group, NULL };
