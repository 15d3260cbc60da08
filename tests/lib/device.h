/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * An opened device with one protection domain, and the GID to talk from.
 */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

struct device {
	const char *name;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint32_t gid_index;
};

/* Open the device called @name, or end the test. @name must stay valid. */
void device_open(struct device *dev, const char *name);
void device_close(struct device *dev);

/* A context of its own for the same device, or NULL. */
struct ibv_context *device_open_context(const char *name);

/*
 * What system() returns for @command on the device's machine, where $DEVICE is the
 * device's name.
 */
int device_run(const struct device *dev, const char *command);

/* Bytes of payload of one packet. */
unsigned int device_mtu(const struct device *dev);

/*
 * The names of the device to test and of its peer: the arguments
 * "--device NAME" and "--peer NAME", or MIC_TEST_DEVICE and MIC_TEST_PEER in
 * the environment, or mic0 and mic1. Removes the arguments from @argv. A device
 * of another machine is called ADDRESS:PORT (proxy.h).
 */
void device_names(int *argc, char **argv, const char **device,
		  const char **peer);

#endif /* TESTS_DEVICE_H */
