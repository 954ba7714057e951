package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestHelperLine(t *testing.T) {
	for _, c := range []struct{ args, want, err string }{
		{"app /mnt/app", "--quiet mount -- app /mnt/app", ""},
		{"app /mnt/app -o rw", "--quiet --read-only=false mount -- app /mnt/app", ""},
		{
			"app /mnt -n -v -o ro,noatime,suid,nodev -o transport=dev,engine=auto,home=/h,x-systemd.automount,nofail",
			"--quiet --read-only=true --noatime=true --nosuid=false --suid=true --dev=false --nodev=true " +
				"--transport=dev --home=/h mount -- app /mnt", "",
		},
		{
			"app /mnt -o allow_suid,allow_dev,nosuid",
			"--quiet --nosuid=false --suid=true --nodev=false --dev=true --suid=false --nosuid=true mount -- app /mnt",
			"",
		},
		{"-o session=a -t fuse.snapfs app /mnt", "--quiet --session=a mount -- app /mnt", ""},
		{"app /mnt -f", "", ""},
		{"app /mnt -s -o strange", "--quiet mount -- app /mnt", ""},
		{"app /mnt -o strange", "", `"strange": there are home=, session=, transport=, engine=, ro, rw, suid`},
		{"app /mnt -o engine=kernel", "", "engine=kernel"},
		{"app /mnt -o", "", "value"},
		{"app /mnt -N 1", "", "namespace"},
		{"app", "", "NAME DIR"},
		{"app /mnt -x", "", "-x"},
	} {
		got, err := helperLine(strings.Fields(c.args))
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", c.args, err, c.err)
		}
		if !slices.Equal(got, strings.Fields(c.want)) && len(got)+len(c.want) > 0 {
			t.Errorf("%s: got %q, want %q", c.args, got, c.want)
		}
	}
}
