// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Results, "[LABEL ]WHAT_MBps BYTES VALUE" on each line, as bars and as curves; all
 * other lines are left out. Both scales are logarithmic.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "chart.h"

#define SUFFIX "_MBps"

enum {
	CURVES = 16,
	POINTS = 64,
	BAR = 40,
	WIDTH = 760,
	HEIGHT = 460,
	LEFT = 70,
	RIGHT = 170,
	TOP = 40,
	BOTTOM = 60
};

struct curve {
	char name[48];
	unsigned int count;
	double sizes[POINTS];
	double values[POINTS];
};

struct scale {
	double first;
	double last;
};

static struct curve curves[CURVES];
static unsigned int curve_count;

static struct curve *find_curve(const char *name)
{
	unsigned int i;

	for (i = 0; i < curve_count; i++)
		if (!strcmp(curves[i].name, name))
			return &curves[i];
	if (curve_count == CURVES)
		return NULL;
	strcpy(curves[i].name, name);
	curve_count++;
	return &curves[i];
}

/* What can be drawn; neither zero, nor infinite, nor so after a step of the grid. */
static bool can_be_drawn(double size, double value)
{
	return size >= 1 && size < 1e18 && value > 1e-9 && value < 1e18;
}

/* Names have what XML has no other meaning for. */
static void add_result(const char *label, char *what, double size, double value)
{
	size_t length = strlen(what), end = strlen(SUFFIX);
	struct curve *curve;
	char name[48];

	if (length <= end || strcmp(what + length - end, SUFFIX) ||
	    strpbrk(label, "<>&") || strpbrk(what, "<>&") ||
	    !can_be_drawn(size, value))
		return;
	what[length - end] = '\0';
	snprintf(name, sizeof(name), "%s%s%s", label, *label ? " " : "", what);
	curve = find_curve(name);
	if (!curve || curve->count == POINTS)
		return;
	curve->sizes[curve->count] = size;
	curve->values[curve->count++] = value;
}

static void read_results(void)
{
	char line[256], one[32], two[32];
	double size, value;

	while (fgets(line, sizeof(line), stdin))
		if (sscanf(line, "%31s %31s %lf %lf", one, two, &size,
			   &value) == 4)
			add_result(one, two, size, value);
		else if (sscanf(line, "%31s %lf %lf", one, &size, &value) == 3)
			add_result("", one, size, value);
}

/* 1024 as 1 KiB. */
static const char *size_text(double size, char *text, size_t room)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB" };
	unsigned int unit = 0;

	while (size >= 1024 && unit < 3) {
		size /= 1024;
		unit++;
	}
	snprintf(text, room, "%g %s", size, units[unit]);
	return text;
}

static struct scale scale_of(bool of_sizes)
{
	struct scale scale = { INFINITY, 0 };
	unsigned int i, j;
	double value;

	for (i = 0; i < curve_count; i++)
		for (j = 0; j < curves[i].count; j++) {
			value = of_sizes ? curves[i].sizes[j] :
					   curves[i].values[j];
			scale.first = fmin(scale.first, value);
			scale.last = fmax(scale.last, value);
		}
	return scale;
}

static void print_bars(double most)
{
	unsigned int i, j;
	char size[32];
	double part;

	for (i = 0; i < curve_count; i++)
		for (j = 0; j < curves[i].count; j++) {
			part = log10(fmax(curves[i].values[j], 1)) /
			       log10(fmax(most, 10));
			printf("%-16s %8s %10.1f MB/s %.*s\n", curves[i].name,
			       size_text(curves[i].sizes[j], size,
					 sizeof(size)),
			       curves[i].values[j], (int)lround(BAR * part),
			       "########################################");
		}
}

static double place(struct scale scale, double value, double from, double to)
{
	double range = log(scale.last / scale.first);

	return from +
	       (to - from) *
		       (range > 0 ? log(value / scale.first) / range : 0.5);
}

static double x_of(struct scale sizes, double size)
{
	return place(sizes, size, LEFT, WIDTH - RIGHT);
}

static double y_of(struct scale values, double value)
{
	return place(values, value, HEIGHT - BOTTOM, TOP);
}

/* The sizes of the longest curve, and powers of ten. */
static void draw_grid(FILE *file, struct scale sizes, struct scale values)
{
	const struct curve *longest = curves;
	double value, x, y;
	char text[32];
	unsigned int i;

	value = values.first;
	while (value <= values.last * 1.01) {
		y = y_of(values, value);
		fprintf(file,
			"<path class='grid' d='M%d %.1fH%d'/>"
			"<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
			LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, value);
		value *= 10;
	}
	for (i = 0; i < curve_count; i++)
		if (curves[i].count > longest->count)
			longest = &curves[i];
	for (i = 0; i < longest->count; i++) {
		x = x_of(sizes, longest->sizes[i]);
		fprintf(file,
			"<path class='grid' d='M%.1f %dV%d'/>"
			"<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n",
			x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18,
			size_text(longest->sizes[i], text, sizeof(text)));
	}
}

static void draw_curve(FILE *file, unsigned int number, struct scale sizes,
		       struct scale values)
{
	static const char *const colours[] = { "#444444", "#0072b2", "#56b4e9",
					       "#009e73", "#d55e00", "#e69f00",
					       "#cc79a7", "#882255" };
	const char *colour = colours[number % 8];
	const char *dashes = number < 8 ? "none" : "6 3";
	const struct curve *curve = &curves[number];
	unsigned int i;

	fprintf(file,
		"<polyline fill='none' stroke='%s' stroke-width='2' "
		"stroke-dasharray='%s' points='",
		colour, dashes);
	for (i = 0; i < curve->count; i++)
		fprintf(file, "%.1f,%.1f ", x_of(sizes, curve->sizes[i]),
			y_of(values, curve->values[i]));
	fprintf(file, "'/>\n<text x='%d' y='%d' fill='%s'>%s</text>\n",
		WIDTH - RIGHT + 16, TOP + 10 + 18 * (int)number, colour,
		curve->name);
}

static int draw(const char *path, struct scale sizes, struct scale values)
{
	FILE *file = fopen(path, "we");
	unsigned int i;
	int failed;

	if (!file) {
		fprintf(stderr, "scif-perf: %s: %s\n", path, strerror(errno));
		return 1;
	}
	values.first = pow(10, floor(log10(values.first)));
	values.last = pow(10, ceil(log10(values.last)));
	fprintf(file,
		"<svg xmlns='http://www.w3.org/2000/svg' width='%d' "
		"height='%d' font-family='sans-serif' font-size='12'>\n"
		"<style>.grid { stroke: #dddddd }</style>\n"
		"<rect width='100%%' height='100%%' fill='white'/>\n"
		"<text x='%d' y='20' font-size='15'>Throughput over transfer "
		"size</text>\n<text x='%d' y='%d' text-anchor='end'>MB/s"
		"</text>\n",
		WIDTH, HEIGHT, LEFT, LEFT - 8, TOP - 12);
	draw_grid(file, sizes, values);
	for (i = 0; i < curve_count; i++)
		draw_curve(file, i, sizes, values);
	fputs("</svg>\n", file);
	failed = ferror(file);
	if (fclose(file) || failed) {
		fprintf(stderr, "scif-perf: %s: cannot be written\n", path);
		return 1;
	}
	return 0;
}

int chart(const char *svg)
{
	struct scale sizes, values;

	read_results();
	if (!curve_count) {
		fprintf(stderr, "scif-perf: no results on standard input; see "
				"scif-perf(1)\n");
		return 1;
	}
	sizes = scale_of(true);
	values = scale_of(false);
	print_bars(values.last);
	return svg ? draw(svg, sizes, values) : 0;
}
