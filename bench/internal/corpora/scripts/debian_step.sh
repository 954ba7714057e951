# One step of a Debian root file system, in a mount and process namespace of its own:
# debian_step.sh ROOT APT MIRROR bootstrap|install|remove PACKAGE...
# What differs from one build to the next for no reason of the packages is taken out at the end.
set -eu
root=$1 apt=$2 mirror=$3 verb=$4
shift 4
export DEBIAN_FRONTEND=noninteractive LC_ALL=C SOURCE_DATE_EPOCH=1700000000
sources="deb $mirror bookworm main"

inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C DEBIAN_FRONTEND=noninteractive SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH PYTHONHASHSEED=0 \
  chroot "$root" "$@" </dev/null >"$apt/log" 2>&1 || { tail -n 20 "$apt/log" >&2; exit 1; }; }
aptget() { inside apt-get -q -y --no-install-recommends -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false -o Dpkg::Options::=--force-unsafe-io "$@"; }

if [ "$verb" = bootstrap ]; then
  debootstrap --variant=minbase bookworm "$root" "$mirror" </dev/null >"$apt/log" 2>&1 || { tail -n 20 "$apt/log" >&2; exit 1; }
  # What runs in a container starts no services.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
else
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --bind "$apt/lists" "$root/var/lib/apt/lists"
  mount --bind "$apt/cache" "$root/var/cache/apt"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  echo "$sources" >"$root/etc/apt/sources.list"
  [ -e "$apt/updated" ] || { aptget update && : >"$apt/updated"; }
  case $verb in
    install) aptget install "$@" ;;
    remove) aptget purge "$@" && aptget autoremove --purge ;;
  esac
  umount "$root/var/cache/apt" "$root/var/lib/apt/lists" "$root/proc"
  umount -R "$root/dev"
fi

: >"$root/etc/resolv.conf"
echo workspace >"$root/etc/hostname"
echo 'deb http://deb.debian.org/debian bookworm main' >"$root/etc/apt/sources.list"
rm -rf "$root"/dev/* "$root"/proc/* "$root"/run/* "$root"/tmp/* "$root"/var/tmp/* "$root"/var/log/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
rm -rf "$root"/var/cache/ldconfig "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/etc/passwd- "$root"/etc/group- "$root"/etc/shadow- "$root"/etc/gshadow-
rm -f "$root"/etc/machine-id "$root"/var/lib/dbus/machine-id "$root"/var/lib/systemd/random-seed
[ ! -e "$root/etc/shadow" ] || sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1:19675:/' "$root/etc/shadow" # the day of the last change
