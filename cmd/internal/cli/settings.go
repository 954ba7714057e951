package cli

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"
)

var (
	errDuration = errors.New("want a duration such as 90m, 72h or 7d")
	errNumber   = errors.New("want a whole number")
	errBool     = errors.New("want true or false")
	errSize     = errors.New("want a size such as 500M, 20G or 20GiB")
)

// bytesize is a flag that takes a number of bytes with a unit: G are 1000³ bytes, GiB 1024³.
type bytesize struct{ to *int64 }

// Set implements pflag.Value, as the next two do.
func (b bytesize) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 {
		return errSize
	}
	*b.to = int64(n)
	return nil
}

func (b bytesize) String() string {
	if b.to == nil {
		return "0"
	}
	return strconv.FormatInt(*b.to, 10)
}

func (bytesize) Type() string { return "size" }

// parseDuration is time.ParseDuration that also takes whole days, as in 7d.
func parseDuration(s string) (time.Duration, error) {
	var d time.Duration
	days, isDays := strings.CutSuffix(s, "d")
	n, err := strconv.ParseInt(days, 10, 17) // more than that do not fit
	if isDays {
		d = time.Duration(n) * 24 * time.Hour
	} else {
		d, err = time.ParseDuration(s)
	}
	if err != nil {
		return 0, errDuration
	}
	return d, nil
}

// duration is a flag that takes what parseDuration takes.
type duration struct{ to *time.Duration }

// Set implements pflag.Value, as the next two do.
func (d duration) Set(s string) error {
	v, err := parseDuration(s)
	if err == nil {
		*d.to = v
	}
	return err
}

func (d duration) String() string {
	if d.to == nil || *d.to == 0 {
		return "0"
	}
	return d.to.String()
}

func (duration) Type() string { return "duration" }

// fromEnvironment sets flags that the command line does not have from the environment: --max-bytes from
// SNAPFS_MAX_BYTES. A value that the flag does not take is an error.
func fromEnvironment(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		variable := "SNAPFS_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		value := os.Getenv(variable)
		if value == "" || flags.Changed(name) {
			continue
		}
		flag := flags.Lookup(name)
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			if err := list.Replace(strings.Split(value, ",")); err != nil {
				return usagef("%s=%q: %v", variable, value, err)
			}
			continue
		}
		if err := flag.Value.Set(value); err != nil {
			switch flag.Value.Type() {
			case (duration{}).Type(), (bytesize{}).Type():
			case "bool":
				if !errors.Is(err, errPluginSocket) {
					err = errBool
				}
			case "string":
			default:
				err = errNumber
			}
			return usagef("%s=%q: %v", variable, value, err)
		}
	}
	return nil
}
