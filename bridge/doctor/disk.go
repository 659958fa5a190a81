package doctor

import (
	"fmt"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Shared judges the shared directory as this host has it: why it cannot be
// written to, and how much room its disk has.
func Shared(path string, trouble error, space spool.Space, low plan.LowWater) []Check {
	if trouble != nil {
		return []Check{failed("shared", trouble.Error(), fmt.Sprintf("name a directory that login and compute nodes share, and that is yours: mkdir -p -m 700 %s", path))}
	}
	checks := []Check{ok("shared", "%s can be written to here", path)}
	if lack := low.Low(space, false); lack != "" {
		return append(checks, failed("low_water", lack+": no bundle would be claimed", "make room, or write a lower low_water"))
	}
	return append(checks, ok("low_water", "%s are free, and %s have to stay so", codalab.FormatSize(space.Free), codalab.FormatSize(low.Of(space.Total))))
}

// Password judges the password's file.
func Password(path string, err error) Check {
	if err != nil {
		return failed("password_file", err.Error(), fmt.Sprintf("write the password of user into it, for your eyes alone: (umask 077; cat > %s)", path))
	}
	return ok("password_file", "%s is there, and yours alone", path)
}
