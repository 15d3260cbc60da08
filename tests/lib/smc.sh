# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's SMC, sockets whose data goes by RDMA, between two sides: tests/smc has the
# programs. After lib/tap.sh. The test has on_side I COMMAND... and on_host I COMMAND...,
# in the namespace that has the netdev and in the machine's first one; smc_netdev I,
# smc_device I, renew I, which makes that device again, smc_load and smc_unload, on all
# sides; and in SMC_ADDRESS side 0's.

SMC_PORT=5000
SMC_SETUP=tests/smc/setup.py
SMC_ECHO=tests/smc/echo.py
# Before a command: its TCP sockets are SMC's.
WITH_SMC=(env LD_PRELOAD="$BIN/libsmc_preload.so")

# smc_setup I: sides without a name in common don't speak SMC of version 2, which
# alone knows GIDs of RoCE version 2; and each is a physical network of its own.
smc_setup() {
	on_side "$1" python3 "$SMC_SETUP" netdev "$(smc_netdev "$1")" "NET$1" &&
		on_host "$1" python3 "$SMC_SETUP" device "$(smc_device "$1")" \
			"NET$1"
}

smc_serve() {
	on_side 0 "${WITH_SMC[@]}" python3 "$SMC_ECHO" server "$SMC_ADDRESS" \
		"$SMC_PORT" &
	server=$!
}

# smc_client SECONDS CONNECTIONS MIB
smc_client() {
	local limit=$1

	shift
	on_side 1 "${WITH_SMC[@]}" timeout $((limit * SLOW)) python3 "$SMC_ECHO" \
		client "$SMC_ADDRESS" "$SMC_PORT" "$@"
}

# written I: bytes by RDMA, so far.
written() {
	on_host "$1" cat \
		"/sys/class/infiniband/$(smc_device "$1")/ports/1/hw_counters/rdma_write_bytes"
}

# tcp_instead: how many connections of either side were TCP after all.
tcp_instead() {
	on_side 0 python3 "$SMC_SETUP" fallbacks
	on_side 1 python3 "$SMC_SETUP" fallbacks
}

# by_rdma CONNECTIONS MIB: all of it, both ways, and nothing by TCP.
by_rdma() {
	local i bytes=$(($1 * $2 << 20)) tcp more
	local -a before

	tcp=$(tcp_instead)
	for i in 0 1; do
		before[i]=$(written "$i")
	done
	smc_client 60 "$@" || return
	for i in 0 1; do
		more=$(($(written "$i") - before[i]))
		echo "side $i: $more bytes"
		[ "$more" -ge "$bytes" ] || return
	done
	[ "$(tcp_instead)" = "$tcp" ]
}

writes_more() {
	[ "$(written 1)" -gt $(($1 + (1 << 20))) ]
}

end_client() {
	on_side 1 pkill -KILL -f "$SMC_ECHO client"
	wait "$1"
}

# while_busy COMMAND...: while a client copies, which fails by it.
while_busy() {
	local before busy

	before=$(written 1)
	smc_client 300 4 0 &
	busy=$!
	if ! wait_until 30 writes_more "$before" || ! "$@"; then
		end_client "$busy"
		return 1
	fi
	ends "$busy" 60 || {
		echo "the client hangs"
		end_client "$busy"
		return 1
	}
	[ "$ended" -ne 0 ] || {
		echo "the client did not notice"
		return 1
	}
}

# Soon: connections that are made while the last ones are being ended may be TCP.
soon_by_rdma() {
	wait_until 60 by_rdma "$@"
}

client_killed() {
	while_busy on_side 1 pkill -KILL -f "$SMC_ECHO client" &&
		soon_by_rdma 4 1
}

# device_goes I: its connections end; when it has come back the next ones are its.
device_goes() {
	while_busy on_host "$1" timeout $((60 * SLOW)) rdma link delete \
		"$(smc_device "$1")" && renew "$1" && soon_by_rdma 4 1
}

smc_server_ends() {
	on_side 0 pkill -KILL -f "$SMC_ECHO server"
	wait "$server"
}

smc_two_networks() {
	smc_setup 0 && smc_setup 1
}

smc_again() {
	smc_load && smc_two_networks
}

# The cases that both tests have. SMC is unloaded before devices go, after which the module
# may stay in use (Documentation/suites.md).
smc_cases() {
	expect "two networks and their devices" smc_two_networks
	smc_serve
	expect "16 MiB and back" by_rdma 1 16
	expect "64 connections" by_rdma 64 1
	expect "the client is killed" client_killed
	smc_server_ends
	expect "smc can be unloaded" wait_until 60 smc_unload
	expect "and loaded again" smc_again
	smc_serve
	expect "the client's device goes" device_goes 1
	expect "the server's device goes" device_goes 0
	smc_server_ends
}
