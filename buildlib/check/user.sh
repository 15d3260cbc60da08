# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The checks of ./run check on user-space code.

user_sources() {
	tree_files '*.c' '*.h' | grep -v -E '^(tests/)?kernel/' |
		grep -v '^buildlib/tests/'
}

# Not buildlib/pabi: tables of another project's interface, in its layout.
check_format() {
	local files file status=0

	mapfile -t files < <(user_sources | grep -v '^buildlib/pabi/')
	if [ -n "$fix" ]; then
		clang-format -i "${files[@]}"
		return
	fi
	for file in "${files[@]}"; do
		clang-format "$file" | diff -u --label "$file" \
			--label "$file, formatted" "$file" - || status=1
	done
	[ $status -eq 0 ] || echo "to format them: ./run check --fix format"
	return $status
}

# configure_user COMPILER: a build folder of its own, and its compile_commands.json
configure_user() {
	local dir=$BUILD/check-$1

	cmake -G Ninja -S "$TREE" -B "$dir" -DCMAKE_C_COMPILER="$1" \
		-DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
		-DMIC_WERROR=ON \
		>"$dir.log" 2>&1 || {
		cat "$dir.log"
		return 1
	}
}

# compile_user COMPILER: all that has changed since it was last compiled
compile_user() {
	configure_user "$1" && ninja -C "$BUILD/check-$1"
}

check_gcc() {
	compile_user gcc
}

check_clang() {
	compile_user clang
}

# Off: what needs the whole program, which a library isn't, and the
# suggestion to make every pointer const.
check_cppcheck() {
	configure_user clang && cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 \
		--enable=warning,portability,performance -j "$(nproc)" \
		--suppress=missingInclude --suppress=missingIncludeSystem \
		--suppress=normalCheckLevelMaxBranches \
		--project="$BUILD/check-clang/compile_commands.json"
}

# Off: findings that ask for C11's Annex K, which libc doesn't have; swapped
# parameters of one type, which C has everywhere; products of small numbers as
# indices; memcmp as a truth value and members in the order they are read,
# which are rdma-core's style; va_list, which clang 14 misunderstands; and
# divisors that only a test's bail() keeps from being zero.
TIDY_CHECKS='-*,clang-analyzer-*,bugprone-*'
TIDY_CHECKS+=',-clang-analyzer-security.insecureAPI.*'
TIDY_CHECKS+=,-bugprone-easily-swappable-parameters
TIDY_CHECKS+=,-bugprone-reserved-identifier
TIDY_CHECKS+=,-bugprone-narrowing-conversions
TIDY_CHECKS+=,-bugprone-implicit-widening-of-multiplication-result
TIDY_CHECKS+=,-bugprone-suspicious-string-compare
TIDY_CHECKS+=,-bugprone-misplaced-widening-cast
TIDY_CHECKS+=,-clang-analyzer-optin.performance.Padding
TIDY_CHECKS+=,-clang-analyzer-valist.Uninitialized
TIDY_CHECKS+=,-clang-analyzer-core.DivideZero

check_clang_tidy() {
	local files

	configure_user clang || return 1
	mapfile -t files < <(sed -n 's/^ *"file": "\(.*\)",*$/\1/p' \
		"$BUILD/check-clang/compile_commands.json")
	printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 4 clang-tidy \
		--quiet --warnings-as-errors='*' --checks="$TIDY_CHECKS" \
		-p "$BUILD/check-clang" 2>&1 | { grep -v -E '(warnings?|errors?) generated\.$' || true; }
}
