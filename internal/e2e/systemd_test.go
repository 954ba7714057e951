package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine is a container in which systemd is process 1: this machine's own root file system, with changes in memory,
// and a home on a real file system.
type machine struct {
	t    *testing.T
	h    *home
	root string // changes to the root file system, kept over boots
}

// boot starts systemd, has it run a script, and gives the script's output.
func (m *machine) boot(script string) string {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(filepath.Join(m.root, "script"), []byte("set -eux\n"+script), 0o755))
	out := filepath.Join(m.root, "out")
	require.NoError(m.t, os.RemoveAll(out))
	r := process(m.t, 5*time.Minute, m.h.tmp, m.h.env, "unshare", "--mount", "--propagation", "slave", "bash", "-ec", `
		tmp=$1 state=$2 group=/sys/fs/cgroup/snapfs-e2e-$$
		umount -R /sys/fs/cgroup 2>/dev/null || true
		mount -t cgroup2 none /sys/fs/cgroup # crun refuses hosts that have both kinds of cgroups
		mkdir $group
		leave() { # podman's monitor ends a little later
			echo $$ >/sys/fs/cgroup/cgroup.procs
			for i in $(seq 600); do
				find $group -depth -type d -exec rmdir {} + 2>/dev/null && return
				sleep 0.1
			done
			echo "$group is busy: $(cat $group/cgroup.procs)" >&2
		}
		trap leave EXIT
		echo $$ >$group/cgroup.procs
		mount -t tmpfs none /run # an upper may not be below its lower, and podman wants a short path
		mkdir /run/upper /run/work /run/root
		mount -t overlay overlay -o lowerdir=/,upperdir=/run/upper,workdir=/run/work /run/root
		cd /run/root
		# The services of the machine itself do not start, and nothing touches the kernel's settings.
		rm -rf etc/systemd/system/*.wants etc/fstab
		rm -f etc/resolv.conf etc/hosts etc/hostname
		touch etc/resolv.conf etc/hosts etc/hostname run/.containerenv
		for unit in systemd-sysctl systemd-binfmt systemd-modules-load systemd-random-seed systemd-udevd; do
			ln -sf /dev/null etc/systemd/system/$unit.service
		done
		: >etc/machine-id
		rm -f var/lib/man-db/auto-update # an index of manual pages is not needed
		cat >etc/systemd/system/script.service <<-END
			[Unit]
			After=multi-user.target
			[Service]
			Type=oneshot
			ExecStart=/bin/bash /state/script
			ExecStopPost=/bin/sh -c 'journalctl --no-pager -u snapfs.service >/state/journal; systemctl --no-block exit \$EXIT_STATUS'
			StandardOutput=file:/state/out
			StandardError=file:/state/err
			END
		mkdir -p etc/systemd/system/multi-user.target.wants
		cat >etc/systemd/system/default.target <<-END
			[Unit]
			Requires=multi-user.target
			After=multi-user.target
			Wants=script.service
			END
		if [ -e $state/kept.tar ]; then tar -xf $state/kept.tar; fi
		mkdir -p state mnt/ws var/lib/snapfs
		code=0
		podman --root $tmp/podman --runroot /run/podman --runtime crun --cgroup-manager cgroupfs --events-backend none \
			run --rm --network none --no-hosts --systemd=false --cgroups=disabled --cgroupns=private --log-driver none \
			--ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --security-opt seccomp=unconfined --env container=podman \
			--security-opt unmask=/sys/fs/cgroup --device /dev/fuse --cap-add SYS_ADMIN --cap-add SYS_PTRACE --cap-add LINUX_IMMUTABLE -v $group:/sys/fs/cgroup:rw \
			-v $tmp/lib:/var/lib/snapfs -v $state:/state --rootfs /run/root /usr/lib/systemd/systemd || code=$?
		tar --ignore-failed-read -cf $state/kept.tar etc/snapfs etc/logrotate.d etc/systemd/system usr/bin/snapfs \
			usr/libexec/snapfs usr/lib/systemd/system/snapfs* var/lib/dpkg usr/sbin/mount.fuse.snapfs 2>/dev/null || true
		exit $code`, "script", m.h.tmp, m.root)
	text := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(m.root, name)) // absent if the boot failed
		return string(b)
	}
	if r.code != 0 {
		m.t.Fatalf("ended with %d: %s%s\nscript:\n%s%s\nservice:\n%s", r.code, tail(r.out), tail(r.err),
			tail(text("out")), tail(text("err")), tail(text("journal")))
	}
	return text("out")
}

// packages makes the packages of a client and the engine beside it in a directory, as a version, and gives the .deb.
func (h *home) packages(version, client string) string {
	h.t.Helper()
	bin, out := h.makeDir("bin-"+version), h.makeDir("dist-"+version)
	shell(h.t, soon, "../..", `
		cp $4 $4-engine $2/
		if [ ! -e $2/../man ]; then go run ./cmd/mkman $2/../man; fi
		cp -r $2/../man $2/
		COMPRESSION=none ./packaging/package $1 $2 $3
		mkdir $2/tree # where there is nothing else
		tar -xzf $3/*.tar.gz -C $2/tree --strip-components=1
		for program in /bin/snapfs /libexec/snapfs/snapfs-engine; do chroot $2/tree $program version; done`, version, bin, out, client)
	found, err := filepath.Glob(filepath.Join(out, "*.deb"))
	require.NoError(h.t, err)
	require.Len(h.t, found, 1)
	return found[0]
}

// TestSystemd installs the package where systemd is process 1, and goes through the life of the service.
func TestSystemd(t *testing.T) {
	if _, err := exec.LookPath("podman"); err != nil {
		t.Skip("there is no podman")
	}
	h := newHome(t)
	m := &machine{t: t, h: h, root: h.makeDir("state")}
	h.makeDir("lib")
	require.NoError(t, os.Rename(h.packages("v1.0", snapfs), h.path("state/v1.deb")))
	later, err := laterVersion()
	require.NoError(t, err)
	require.NoError(t, os.Rename(h.packages("v2.0", later), h.path("state/v2.deb")))

	out := m.boot(`
		dpkg -i /state/v1.deb
		systemctl is-active snapfs.socket snapfs.service
		test $(stat -c %a /var/lib/snapfs/daemon.sock) = 600
		man -w snapfs-serve mount.fuse.snapfs >/dev/null

		# A mount that the service makes is everybody's.
		snapfs --verbose up ws /mnt/ws 2>&1
		pid=$(systemctl show --value -p MainPID snapfs.service)
		snapfs status | grep "^pid *$pid$"
		exec 7>/mnt/ws/open
		# One that is made in another mount namespace is there alone: the unit lets the daemon enter it.
		unshare --mount --propagation private sh -ec 'snapfs up other /mnt/other; findmnt -n -o SOURCE /mnt/other >&2; snapfs umount other' >&2
		! findmnt /mnt/other

		echo reload
		printf '%s\n' 'max-snapshots = 1' 'keep-mounts = false' >>/etc/snapfs/daemon.toml # the latter after the restart
		systemctl reload snapfs
		kill -HUP $pid
		snapfs --quiet snapshot ws --name one >/dev/null
		snapfs --quiet snapshot ws --name two || test $? = 4
		echo held >&7
		grep held /mnt/ws/open
		test $(systemctl show --value -p MainPID snapfs.service) = $pid
		exec 7>&-

		echo rotate
		echo 'log = "/var/log/snapfs/daemon.log"' >>/etc/snapfs/daemon.toml
		systemctl restart snapfs
		pid=$(systemctl show --value -p MainPID snapfs.service)
		logrotate -f /etc/logrotate.d/snapfs
		grep -c msg=serving /var/log/snapfs/daemon.log.1
		grep -c msg=reloaded /var/log/snapfs/daemon.log
		test $(systemctl show --value -p MainPID snapfs.service) = $pid

		echo restart
		touch /state/load
		( while [ -e /state/load ]; do snapfs --quiet show ws --json >/dev/null || echo "failed: $?"; echo . >>/run/calls; done ) &
		( while [ -e /state/load ]; do echo x >>/mnt/ws/load; done ) 2>/dev/null &
		for i in 1 2 3; do
			calls=$(cat /run/calls | wc -l)
			systemctl restart snapfs
			findmnt -n -o FSTYPE,SOURCE /mnt/ws
			while [ $(cat /run/calls | wc -l) -le $calls ]; do sleep 0.05; done
		done
		rm /state/load
		wait
		test "$(systemctl show --value -p NRestarts snapfs.service)" = 0

		echo upgrade
		pid=$(systemctl show --value -p MainPID snapfs.service)
		( cd /mnt/ws && exec sleep 1000 ) & # a mount that is in use
		sleeper=$!
		while [ "$(readlink /proc/$sleeper/cwd)" != /mnt/ws ]; do sleep 0.05; done
		dpkg -i --force-confold /state/v2.deb 2>&1
		snapfs status 2>&1
		kill $sleeper
		wait $sleeper || true
		snapfs upgrade 2>&1
		snapfs status | grep version
		findmnt -n -o FSTYPE,SOURCE /mnt/ws
		test $(systemctl show --value -p MainPID snapfs.service) = $pid
		systemctl is-active snapfs.socket snapfs.service
		systemctl reload snapfs
		snapfs check`)
	t.Log(out)
	require.NotContains(t, out, "failed:")
	require.NotContains(t, out, "started daemon")
	require.Equal(t, 4, strings.Count(out, "fuse.snapfs ws"))
	before, after, _ := strings.Cut(out, "upgrade\n")
	require.NotEmpty(t, before)
	require.Contains(t, after, "ws at /mnt/ws by process")
	require.Contains(t, after, "snapfs: the daemon of the earlier version goes on")
	require.Contains(t, after, "the daemon is of version devel, this command of version v2")
	require.Regexp(t, `(?m)^version +v2$`, after)

	// After a reboot the service mounts what was mounted. Removing the package leaves the data.
	out = m.boot(`
		systemctl is-active snapfs.socket snapfs.service
		findmnt -n -o FSTYPE,SOURCE /mnt/ws
		grep held /mnt/ws/open

		echo kept` + keptMounts + `

		echo remove
		# Removing the package gives mountpoints back. Installing it again starts the service.
		snapfs --quiet create place >&2
		mkdir /state/place
		snapfs --quiet mount place /state/place >&2
		dpkg --remove snapfs >&2
		! findmnt /mnt/ws
		rmdir /state/place
		dpkg -i --force-confold /state/v2.deb >&2
		systemctl is-active snapfs.socket snapfs.service
		findmnt -n -o FSTYPE,SOURCE /mnt/ws

		dpkg --purge snapfs 2>&1
		systemctl is-active snapfs.socket snapfs.service || true
		! findmnt /mnt/ws
		test ! -e /usr/bin/snapfs
		test -z "$(ls -d /etc/systemd/system/*.wants/snapfs.* 2>/dev/null)"
		test -e /var/lib/snapfs/snapfs-home`)
	t.Log(out)
	require.True(t, strings.HasPrefix(out, "active\nactive\nfuse.snapfs ws\nheld\nkept\n"), out)
	kept, removed, _ := strings.Cut(out, "remove\n")
	require.NotContains(t, kept, "the program failed")
	require.Equal(t, 2, strings.Count(kept, "attempts have failed: a daemon: exit status 9"))
	require.Contains(t, kept, "1 mounts wait for it")
	require.True(t, strings.HasSuffix(kept, "activating\nactive\nactive\nactive\nactive\n"), kept)
	require.True(t, strings.HasPrefix(removed, "active\nactive\nfuse.snapfs ws\n"), removed)
	require.Contains(t, removed, "are kept")
}
