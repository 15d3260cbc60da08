# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ./run vm: what the virtual machine gets, and how it starts. The options
# kernel, mem, cpus, timeout, out and modules are variables of vm.sh.

vm_pid='' output_pid='' run_dir=''

# prepare_run [COMMAND...]: the run folder, which the VM can write to.
prepare_run() {
	mkdir -p "$BUILD/vm"
	remove_old_runs
	run_dir=$(mktemp -d "$BUILD/vm/run-XXXXXX")
	exec {run_fd}>"$run_dir/lock"
	flock "$run_fd"
	out=${out:-$run_dir/out}
	mkdir -p "$out"
	out=$(readlink -f "$out")
	slow=1
	[ "$kernel" != debug ] || slow=4
	interactive=0
	if [ $# -gt 0 ]; then
		{
			settings
			printf '%q ' exec "$@"
		} >"$run_dir/command"
		timeout=${timeout:-600}
	else
		interactive=1
		timeout=${timeout:-0}
	fi
	write_config 0 "$run_dir" >"$run_dir/config"
	make_initramfs "$run_dir/initramfs"
}

# remove_old_runs: what others left more than ten hours ago. Whose VM still runs, a
# shell's perhaps, keeps its folder locked.
remove_old_runs() {
	local dir fd

	while IFS= read -r -d '' dir; do
		if ! exec {fd}>"$dir/lock"; then
			continue
		fi 2>/dev/null
		! flock -n "$fd" || rm -rf "$dir"
		exec {fd}>&-
	done < <(find "$BUILD/vm" -mindepth 1 -maxdepth 1 -name 'run-*' \
		-mmin +600 -print0)
}

# What tests can be told: the variables MIC_TEST_*.
settings() {
	local name

	for name in "${!MIC_TEST_@}"; do
		printf 'export %s=%q\n' "$name" "${!name}"
	done
}

# write_config NODE FOLDER: read by busybox sh and by bash in the VM.
write_config() {
	local rows=24 columns=80 interactive=$interactive

	[ "$1" -eq 0 ] || interactive=0
	if [ "$interactive" = 1 ]; then
		read -r rows columns < <(stty size)
	fi
	cat <<-END
		TREE='$TREE'
		NODE='$1'
		NODES='$nodes'
		APERTURES='$(apertures "$1")'
		RUN_DIR='$2'
		OUT_DIR='$out'
		KERNEL='$kernel'
		KREL='$KREL'
		KROOT='$KROOT'
		MODULES='$modules'
		SLOW='$slow'
		INTERACTIVE='$interactive'
		ROWS='$rows'
		COLUMNS='$columns'
		TERMINAL='${TERM:-linux}'
		TMPFS_DIR='$(tmpfs_dir)'
		PACKAGES='$([ ! -d "$VM_PACKAGES/root" ] || echo 1)'
	END
}

# The VM's /run is empty, unless something needed is in there.
tmpfs_dir() {
	local needed

	for needed in "$TREE" "$out" "$KROOT"; do
		case $needed in
		/run/*) return 0 ;;
		esac
	done
	echo /run
}

# /dev/kvm alone proves nothing: there are machines where it exists and
# every guest hangs.
accelerator() {
	local threads=thread=multi

	[ -z "$icount" ] || threads="thread=single -icount shift=0"
	if [ -z "$icount" ] && may_use_kvm; then
		echo "-accel kvm -cpu host"
	else
		# With erms and fsrm the guest copies memory with rep movsb,
		# which TCG does a byte at a time.
		echo "-accel tcg,$threads -cpu max,erms=off,fsrm=off"
	fi
}

may_use_kvm() {
	grep -q -w -E 'vmx|svm' /proc/cpuinfo && [ -e /dev/kvm ] || return
	[ ! -w /dev/kvm ] || return 0
	say "/dev/kvm is not for $(id -un), so the processor is emulated, which is" \
		"slow; to change that: adduser $(id -un) kvm, and log in again"
	return 1
}

# maxcpus=1: see guest/init. unknown_nmi_panic, panic_print: see look_at_hang.
# no_timer_check: a busy host may not let the timer tick while the kernel counts.
# iomem=relaxed: what a driver has can be mapped, as tests/fabric/region.py does.
# secretmem.enable: memory that nobody may pin, which tests/demand has.
# norandmaps: an emulator translates code again where it comes at another address, by
# which a process takes three times as long to begin.
kernel_arguments() {
	local more=''

	[[ $1 != *"-accel tcg"* ]] || more=norandmaps
	echo "console=ttyS0 loglevel=5 log_buf_len=16M panic=-1 oops=panic" \
		"sysrq_always_enabled rcupdate.rcu_cpu_stall_timeout=120" \
		"unknown_nmi_panic panic_print=0x40 maxcpus=1" \
		"tsc=reliable no_timer_check mitigations=off net.ifnames=0 nokaslr" \
		"iomem=relaxed secretmem.enable=1" $more
}

# take_slot: wait until a pair of cores is free, in the order of coming. A VM's
# processors poll; two VMs on the same cores make each other miss deadlines. Who
# starts some that bear it says in $MIC_VM_SLOTS how many may be at once; where there
# is one pair of cores these share the company, and one that does not bear it, of
# another clone perhaps, has it alone. A ticket is
# a file that its owner keeps locked: one that can be locked was left behind.
take_slot() {
	local slots=$(($(nproc) / 2)) dir=${TMPDIR:-/tmp} i said='' ticket
	local company=--shared

	[ "$slots" -gt 1 ] || slots=1 company=--exclusive
	if [ "${MIC_VM_SLOTS:-0}" -gt "$slots" ]; then
		slots=$MIC_VM_SLOTS company=--shared
	fi
	mkdir -m 1777 "$dir/mic-vm-queue" 2>/dev/null || [ -d "$dir/mic-vm-queue" ]
	ticket=$dir/mic-vm-queue/$(date +%s%N)-$$
	exec {ticket_fd}>"$ticket"
	flock "$ticket_fd"
	while true; do
		for ((i = 0; i < slots; i++)); do
			if is_first "$ticket" &&
				lock_slot "$company" "$dir/mic-vm-company" \
					"$dir/mic-vm-slot-$i"; then
				rm -f "$ticket"
				exec {ticket_fd}>&-
				return 0
			fi
		done
		[ -n "$said" ] || say "waiting for another VM of this machine to end"
		said=1
		sleep 1
	done
}

# lock_slot KIND COMPANY SLOT: both files, until this script ends; or neither.
lock_slot() {
	[ -e "$2" ] || : >"$2"
	[ -e "$3" ] || : >"$3"
	exec {company_fd}<"$2" {slot}<"$3"
	flock -n "$1" "$company_fd" && flock -n "$slot" && return 0
	exec {company_fd}<&- {slot}<&-
	return 1
}

# is_first TICKET: does nobody wait who came before?
is_first() {
	local other fd

	for other in "${1%/*}"/*; do
		[ "$other" != "$1" ] || return 0
		if ! exec {fd}<"$other"; then
			continue
		elif flock -n "$fd"; then
			rm -f "$other"
			exec {fd}<&-
		else
			exec {fd}<&-
			return 1
		fi
	done 2>/dev/null
}

# vm_words NODE FOLDER: the command that boots it, but for its terminals, in
# the array words. setpriv: the VM ends when who started it does, whatever ends
# that.
vm_words() {
	local shares=security_model=none,multidevs=remap processor

	processor=$(accelerator)
	# shellcheck disable=SC2206 # The accelerator is several words.
	words=(setpriv --pdeathsig KILL qemu-system-x86_64
		-nodefaults -no-user-config -display none -no-reboot
		-machine q35 $processor -smp "$cpus" -m "$mem"
		-kernel "$KIMAGE" -initrd "$run_dir/initramfs"
		-append "$(kernel_arguments "$processor")"
		-virtfs "local,path=/,mount_tag=host,readonly=on,$shares"
		-virtfs "local,path=$2,mount_tag=ctl,$shares"
		-virtfs "local,path=$out,mount_tag=out,$shares"
		-device virtio-serial-pci
		# Two network cards with a cable between them; see make_nics.
		-netdev "hubport,id=nic0,hubid=0" -netdev "hubport,id=nic1,hubid=0"
		-device "virtio-net-pci,netdev=nic0,mac=02:00:00:00:79:01,romfile="
		-device "virtio-net-pci,netdev=nic1,mac=02:00:00:00:79:02,romfile=")
	[ ! -d "$VM_PACKAGES/root" ] || words+=(-virtfs
		"local,path=$VM_PACKAGES/root,mount_tag=packages,readonly=on,$shares")
	[ "$nodes" -eq 1 ] || node_words "$1"
}

start_vm() {
	local words terminal

	mkfifo "$run_dir"/{con.in,con.out,mon.in,mon.out,output}
	started=$SECONDS
	vm_words 0 "$run_dir"
	if [ "$interactive" = 1 ]; then
		saved_tty=$(stty -g)
		terminal=(-chardev "stdio,id=tty,signal=off"
			-device "virtconsole,chardev=tty")
	else
		terminal=(-chardev "file,id=output,path=$run_dir/output"
			-device "virtserialport,chardev=output,name=output")
		cat "$run_dir/output" &
		output_pid=$!
	fi
	cat "$run_dir/con.out" >"$run_dir/console" &
	console_pid=$!
	exec 3<&0
	"${words[@]}" "${terminal[@]}" \
		-chardev "pipe,id=con,path=$run_dir/con" -serial chardev:con \
		-chardev "pipe,id=mon,path=$run_dir/mon" -mon chardev=mon \
		<&3 2>"$run_dir/qemu" &
	vm_pid=$!
}
