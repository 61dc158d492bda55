#!/bin/busybox sh
# First process of the virtual machine that vm.py boots: the host's root, read-only below an overlay in memory, becomes
# the root, with one more unit: the job. Then systemd takes over.
b=/bin/busybox
$b mkdir -p /proc /lower /memory /new
$b mount -t proc proc /proc
for module in /modules/*; do $b insmod "$module"; done
$b mount -t virtiofs -o ro root /lower
$b mount -t tmpfs -o size=50% memory /memory
$b mkdir /memory/upper /memory/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work root /new
$b cp /job /new/job
$b cp /job.service /new/etc/systemd/system/
$b mkdir -p /new/usr/lib/modules
$b cp -r /lib/modules/. /new/usr/lib/modules/
$b rm -f /new/.dockerenv # or systemd takes this for a container
$b rm -rf /new/etc/systemd/system/*.wants # this machine's services have no part in it
$b rm -f /new/usr/lib/tmpfiles.d/tmp.conf # or systemd empties /tmp first, file by file: virtiofsd has one open for each
exec $b switch_root /new /sbin/init --unit=job.service </dev/console >/dev/console 2>&1
