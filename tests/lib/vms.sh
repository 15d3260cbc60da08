# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# What lib/nodes.sh has, where node0 and node1 are the machines of ./run vm
# --nodes 2. After lib/tap.sh and lib/machines.sh.

# make_nodes: they are there; each gets to know the other by name, and has a
# folder of the same name for programs. TYPE and MODE are what they are.
make_nodes() {
	local i

	meet || return
	for i in 0 1; do
		on_machine "$i" bash -c "
			sed -i '/ node[01]\$/d' /etc/hosts
			echo '$CLIENT_ADDRESS node0' >>/etc/hosts
			echo '$SERVER_ADDRESS node1' >>/etc/hosts
			mkdir -p '$SCRATCH'" || return
	done
}

delete_nodes() {
	./run on 1 rm -rf "$SCRATCH"
}

# on_node I COMMAND...: there, with the variables of the programs' libraries.
on_node() {
	local node=$1

	shift
	on_machine "$node" env RDMAV_DRIVERS="$RDMAV_DRIVERS" "$@"
}

# give_to_nodes FILE: it is on both under the same name.
give_to_nodes() {
	local file=$MIC_OUT/$TEST_NAME.${1##*/}

	cp "$1" "$file" || return
	./run on 1 cp "$file" "$1" || return
	rm "$file"
}

# What starts a process on another node, as rsh would. Open MPI's daemon there wants
# to find it, too.
make_agent() {
	cat >"$SCRATCH/agent" <<-END
		#!/bin/bash
		while [[ \$1 == -* ]]; do
			shift
		done
		node=\$1
		shift
		cd "$MIC_TREE" || exit
		[ "\$node" = node0 ] || set -- ./run on "\${node#node}" bash -c "\$*"
		[ "\$node" != node0 ] || set -- bash -c "\$*"
		exec "\$@"
	END
	chmod +x "$SCRATCH/agent"
	give_to_nodes "$SCRATCH/agent" || return
	# what the agent has started ends with it
	export OMPI_MCA_orte_leave_session_attached=1
}

# named_on I NAME: the pid of a process of that name there.
named_on() {
	on_machine "$1" pgrep -x -- "${2:0:15}" | head -n 1 | grep .
}

# nothing_on I: no program of this test runs there.
nothing_on() {
	! on_machine "$1" pgrep -f "^$SCRATCH/"
}
