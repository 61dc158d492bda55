#!/bin/sh
# First process of the guest that guest.py boots: the host's root, read-only below an overlay in memory, becomes the root;
# then the job runs, with a kernel of its own that has netem and control groups of version 2.
# OUT, from the kernel's command line, is a directory of the host for the job, its output and its exit code.
set -e
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
unset TERM
finish() { # also where something above the job failed: the guest always ends
    cd /
    sync
    echo o >/proc/sysrq-trigger
    sleep 60
}
trap finish EXIT

mount -t proc proc /proc
modules=/usr/lib/uml/modules/$(uname -r)
insmod "$modules/kernel/fs/overlayfs/overlay.ko" # by itself: nothing can be found for modprobe yet
mount -t tmpfs -o size=90% memory /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay root -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
cd /mnt/root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t devtmpfs devices dev
mkdir -p dev/pts dev/shm
mount -t devpts -o ptmxmode=666 terminals dev/pts
mount -t tmpfs memory dev/shm
mount -t tmpfs -o mode=755 memory run
mount -t cgroup2 groups sys/fs/cgroup
mkdir -p usr/lib/modules ".$OUT"
ln -sfn "$modules" usr/lib/modules/ # from here on modules load themselves when they are asked for
mount -t hostfs -o "$OUT" job ".$OUT"
mkdir oldroot
pivot_root . oldroot # a chroot would forbid user namespaces
cd /
umount -l /oldroot
ip link set lo up

code=0
bash "$OUT/job" >"$OUT/log" 2>&1 </dev/null || code=$?
echo "$code" >"$OUT/code"
