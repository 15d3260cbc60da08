# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The checks of ./run check that only read text.

# tree_files PATTERN...: what is or would be in git.
tree_files() {
	git ls-files -c -o --exclude-standard --deduplicate -- "$@" |
		while IFS= read -r file; do
			[ ! -f "$file" ] || echo "$file"
		done
}

shell_files() {
	tree_files | xargs -d '\n' awk 'FNR == 1 && \
		/^(#!\/bin\/(bash|sh|busybox sh)|# shellcheck shell=)/ { print FILENAME }
		{ nextfile }'
}

source_files() {
	tree_files '*.c' '*.h' '*.py' '*.cmake' '*.map' '*.config' '*.in' \
		'*.conf' '*.rules' '*.service' '*.spec' '*Kbuild' '*Makefile' '*CMakeLists.txt'
	# a man page of one line is another name of one
	tree_files '*.[1-8]' ':!COPYING*' | xargs -r grep -L '^\.so '
	shell_files
}

check_spdx() {
	local without

	without=$(source_files | sort -u | xargs -d '\n' awk '
		FNR == 1 { tell(); file = FILENAME; found = 0 }
		FNR > 5 { nextfile }
		/SPDX-License-Identifier: / { found = 1 }
		END { tell() }
		function tell() { if (file != "" && !found) print file }')
	[ -z "$without" ] || {
		echo "no SPDX-License-Identifier in the first five lines:"
		echo "$without"
		return 1
	}
}

# Written so that this file does not find itself.
check_paths() {
	local found

	found=$(tree_files | tr '\n' '\0' | xargs -0 grep -I -n -E \
		-e '/wor[k]/' -e '\.\./share[d]' -e '/hom[e]/[a-z]' || true)
	[ -z "$found" ] || {
		echo "$found"
		echo "these lines mention a place that only one machine has"
		return 1
	}
}

check_bash() {
	shell_files | tr '\n' '\0' | xargs -0 -r shellcheck -x -S info
}

check_python() {
	tree_files '*.py' | while IFS= read -r file; do
		python3 -c 'import ast, sys
ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file" || return
	done
}
