package config

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Duration is a time as CodaLab writes it: "90s", "3h", "2d".
type Duration struct {
	time.Duration

	set bool // by a file, perhaps to 0
}

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := codalab.ParseDuration(string(text))
	*d = Duration{v, true}
	return err
}

// Or returns the duration, or another one where the file has none.
func (d Duration) Or(other time.Duration) time.Duration {
	if !d.set {
		return other
	}
	return d.Duration
}

// Size is a number of bytes as CodaLab writes it: "300m", "2g".
type Size struct {
	Bytes int64

	set bool // by a file, perhaps to 0
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	v, err := codalab.ParseSize(string(text))
	*s = Size{v, true}
	return err
}

// MarshalText writes a size.
func (s Size) MarshalText() ([]byte, error) { return []byte(codalab.FormatSize(s.Bytes)), nil }

// Or returns the size in bytes, or another one where the file has none.
func (s Size) Or(other int64) int64 {
	if !s.set {
		return other
	}
	return s.Bytes
}

// LowWater is the part of a disk that has to stay free: a size, "50g", or a part, "5%".
type LowWater struct {
	plan.LowWater

	set bool // by a file, perhaps to 0
}

// LeastLowWater is the smallest low water. Below it a unit is probably missing.
const LeastLowWater = 64 << 20

// UnmarshalText reads a low water.
func (l *LowWater) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	if !ok {
		v, err := codalab.ParseSize(string(text))
		*l = LowWater{plan.LowWater{Bytes: v}, true}
		return err
	}
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !(percent >= 0 && percent <= 50) {
		return fmt.Errorf("%q is no part of a disk: want one up to 50%%, such as \"5%%\", or a size such as \"50g\"", text)
	}
	*l = LowWater{plan.LowWater{Share: percent / 100}, true}
	return nil
}

// Architecture is that of nodes, as Go or uname(1) spells it; empty means this host's.
type Architecture string

// KnownArchitectures returns the architectures that nodes may have, in Go's spelling.
func KnownArchitectures() []string { return []string{"amd64", "arm64", "ppc64le", "riscv64", "s390x"} }

// Canonical returns the architecture in Go's spelling.
func (a Architecture) Canonical() Architecture {
	switch a {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	case "":
		return Architecture(runtime.GOARCH)
	}
	return a
}

// Foreign returns the architecture in Go's spelling, or nothing for this host's.
func (a Architecture) Foreign() Architecture {
	if a.Canonical() == Architecture(runtime.GOARCH) {
		return ""
	}
	return a.Canonical()
}

// Check refuses an unknown architecture.
func (a Architecture) Check() error {
	if !slices.Contains(KnownArchitectures(), string(a.Canonical())) {
		return fmt.Errorf("%q is no architecture that is known here: want one of %s", a, strings.Join(KnownArchitectures(), ", "))
	}
	return nil
}
