package e2e

// keptMounts is a part of TestSystemd: mounts of the service outlive its daemon, however that ends but by a stop, under a
// program that writes. It prints what is no success.
const keptMounts = `
		systemd-analyze verify --man=no snapfs.socket snapfs.service snapfs-holder.service
		sed -i '/^keep-mounts/d' /etc/snapfs/daemon.toml # back to the default
		systemctl restart snapfs
		mounted=$(findmnt -n -o ID /mnt/ws)
		mkdir /mnt/ws/kept

		set +x # of what waits
		main() { systemctl show --value -p MainPID $1; }
		# Another process than $2 is the main process of the unit $1.
		another() { until p=$(main $1) && test $p != 0 -a $p != $2; do sleep 0.02; done; }
		until_is() { until test "$(systemctl is-active $1)" = $2; do sleep 0.02; done; }
		touch /run/go
		( exec 7>>/mnt/ws/kept/lines
		cd /mnt/ws/kept
		for ((i = 1;; i++)); do
			test -e /run/go || break
			echo $i >&7 && mkdir d$i && mv d$i e$i && rmdir e$i && echo $i >/run/done || { echo "the program failed at $i"; break; }
		done ) 2>&1 &
		program=$!
		# The program goes on, in the same mount, and the daemon answers.
		on() {
			local at=$(cat /run/done)
			until test "$(cat /run/done)" -gt $((at + 2)); do kill -0 $program; sleep 0.02; done
			test $(findmnt -n -o ID /mnt/ws) = $mounted
			snapfs --quiet show ws >/dev/null
			snapfs status | grep "^holder *$(main snapfs-holder)$" >/dev/null
		}
		until [ -s /run/done ]; do sleep 0.02; done
		on
		for do in 'systemctl restart snapfs' 'systemctl kill -s KILL snapfs' 'kill -9 $pid' 'systemctl daemon-reexec; kill -9 $pid'; do
			echo "$do" >&2
			pid=$(main snapfs)
			eval "$do"
			another snapfs $pid
			on
		done
		snapfs upgrade --force 2>&1
		on

		echo 'the holder is killed, and then the daemon' >&2
		pid=$(main snapfs-holder)
		systemctl kill -s KILL snapfs-holder
		another snapfs-holder $pid
		until snapfs status | grep "^holder *$(main snapfs-holder)$" >/dev/null; do sleep 0.02; done
		pid=$(main snapfs)
		kill -9 $pid
		another snapfs $pid
		on

		echo 'the daemon hangs' >&2
		mkdir -p /run/systemd/system/snapfs.service.d
		printf '[Service]\nWatchdogSec=3s\n' >/run/systemd/system/snapfs.service.d/watchdog.conf
		systemctl daemon-reload
		systemctl restart snapfs
		pid=$(main snapfs)
		kill -STOP $pid
		another snapfs $pid
		on
		rm -r /run/systemd/system/snapfs.service.d
		systemctl daemon-reload

		echo 'the daemon cannot start' >&2
		mv /usr/libexec/snapfs/snapfs-engine /run/engine
		printf '#!/bin/sh\nexit 9\n' >/usr/libexec/snapfs/snapfs-engine
		chmod 755 /usr/libexec/snapfs/snapfs-engine
		kill -9 $(main snapfs)
		for verb in status 'show ws'; do
			snapfs $verb 2>&1 || test $? = 7
		done
		systemctl is-active snapfs || true
		mv /run/engine /usr/libexec/snapfs/snapfs-engine
		systemctl start snapfs
		on

		echo 'the program ends' >&2
		rm /run/go
		wait $program
		set -x
		last=$(cat /run/done)
		seq $last | cmp - /mnt/ws/kept/lines
		test $(ls /mnt/ws/kept) = lines
		for do in 'systemctl stop snapfs' 'snapfs stop'; do
			$do
			! findmnt /mnt/ws
			until_is snapfs inactive
			until_is snapfs-holder inactive
			# Who uses the socket starts the service.
			snapfs --quiet show ws >/dev/null
			seq $last | cmp - /mnt/ws/kept/lines
			until_is snapfs active # it answers before it says so
			until_is snapfs-holder active
			systemctl is-active snapfs snapfs-holder
		done
		snapfs check`
