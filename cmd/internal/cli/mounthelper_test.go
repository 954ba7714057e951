package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestHelperLine(t *testing.T) {
	for _, c := range []struct{ args, want, err string }{
		{"app /mnt/app", "mount --quiet -- app /mnt/app", ""},
		{"app /mnt/app -o rw", "mount --quiet --options=rw -- app /mnt/app", ""},
		{
			"app /mnt -n -v -o ro,noatime,suid,nodev -o transport=dev,engine=auto,home=/h,x-systemd.automount,nofail",
			"mount --quiet --home=/h --options=ro,noatime,suid,nodev,transport=dev,engine=auto -- app /mnt", "",
		},
		{"run run -o ro", "mount --quiet --options=ro -- run run", ""},
		{
			"app /mnt -o rw,relatime,user_id=0,group_id=0,max_read=1048576,remount,ro",
			"mount --quiet --options=rw,remount,ro -- /mnt /mnt", "",
		},
		{"app /mnt -o user_id=0", "", "user_id=0"},
		{
			"app /mnt -o remount,rw,user_id=0,group_id=0,default_permissions,allow_other,max_read=1048576,ro",
			"mount --quiet --options=remount,rw,allow_other,ro -- /mnt /mnt", "",
		},
		{"-o session=a -t fuse.snapfs app /mnt", "mount --quiet --session=a -- app /mnt", ""},
		{"app /mnt -f", "", ""},
		{"app /mnt -s -o strange", "mount --quiet -- app /mnt", ""},
		{"app /mnt -o strange", "", `"strange": there are home=, session=, transport=, engine=, remount, ro, rw, suid`},
		{"app /mnt -o engine=kernel,nodev", "mount --quiet --options=engine=kernel,nodev -- app /mnt", ""},
		{"app /mnt -o engine=steam", "", "engine=steam: fuse, kernel or auto"},
		{"app /mnt -o engine=", "", "engine=: fuse, kernel or auto"},
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
