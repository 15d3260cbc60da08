# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For ./run test --resume: a run of all tests takes many hours, and one that was
# interrupted goes on. A test that passes leaves build/test-passed/KERNEL/NAME, with the
# state of the tree at its end, how many of its cases passed and how many were skipped
# as expected. As long as the tree is in that state, that is still so.

PASSED_TESTS=$BUILD/test-passed

# tree_state: a word for what all files of the tree hold, but those that were built, and
# for what tests are told by variables. Of those, some are ./run test's own.
tree_state() {
	{
		cd "$TREE" || exit
		find . \( -path ./build -o -path ./.git -o -name __pycache__ \) -prune \
			-o -type f -print0 | sort -z | xargs -0 sha256sum
		env | grep '^MIC_TEST_' | grep -v -E '^MIC_TEST_(QUEUE|FAILED|LANE)=' |
			sort
	} | sha256sum | cut -d ' ' -f 1
}

# remember_passed NAME PASSED SKIPPED: unless the tree has changed meanwhile.
remember_passed() {
	local folder=$PASSED_TESTS/${kernel:-6.1}

	mkdir -p "$folder"
	if [ "$(tree_state)" = "$begun_with" ]; then
		echo "$begun_with $2 $3" >"$folder/$1"
	else
		rm -f "$folder/$1"
	fi
}

# forget_passed NAME...: they failed, or the machine that they ran in did afterwards.
forget_passed() {
	local name

	for name in "$@"; do
		rm -f "$PASSED_TESTS/${kernel:-6.1}/$name"
	done
}

# leave_out_passed: takes those that need not run out of $names; their numbers count.
leave_out_passed() {
	local name state passes skips left=() count=0

	for name in "${names[@]}"; do
		state=''
		read -r state passes skips 2>/dev/null \
			<"$PASSED_TESTS/${kernel:-6.1}/$name" || true
		if [ "$state" = "$begun_with" ]; then
			passed=$((passed + passes))
			skipped=$((skipped + skips))
			count=$((count + 1))
		else
			left+=("$name")
		fi
	done
	names=("${left[@]}")
	echo "have passed before, in the tree as it is: $count tests" \
		"($passed passed, $skipped skipped); to run: ${#names[@]}"
}
