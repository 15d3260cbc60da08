/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * What SCIF programs rely on, as numbered cases.
 */
#ifndef SCIF_TESTS_BEHAVIOUR_H
#define SCIF_TESTS_BEHAVIOUR_H

#include <stdbool.h>

struct behaviour {
	int number;
	const char *name;
	bool (*run)(void);
};

/* Each list ends with an entry without a name. */
extern const struct behaviour connection_cases[];
extern const struct behaviour port_cases[];
extern const struct behaviour accept_cases[];
extern const struct behaviour message_cases[];
extern const struct behaviour hot_cases[];
extern const struct behaviour mapped_hot_cases[];
extern const struct behaviour readiness_cases[];
extern const struct behaviour window_cases[];
extern const struct behaviour copy_cases[];
extern const struct behaviour order_cases[];
extern const struct behaviour unwatched_cases[];
extern const struct behaviour mapping_cases[];
extern const struct behaviour fence_cases[];
extern const struct behaviour closing_cases[];
extern const struct behaviour device_cases[];
extern const struct behaviour under_way_cases[];
extern const struct behaviour waiting_cases[];
extern const struct behaviour number_cases[];
extern const struct behaviour oneself_cases[];
/* For devices whose memory others can map and watch. */
extern const struct behaviour mapped_cases[];
extern const struct behaviour unmapping_cases[];
extern const struct behaviour mapped_oneself_cases[];
extern const struct behaviour watched_cases[];
extern const struct behaviour handed_cases[];
extern const struct behaviour lifetime_cases[];
extern const struct behaviour holding_cases[];
extern const struct behaviour own_under_way_cases[];
extern const struct behaviour credential_cases[];
/* For devices whose device memory others can map. */
extern const struct behaviour mapped_device_cases[];

#endif /* SCIF_TESTS_BEHAVIOUR_H */
