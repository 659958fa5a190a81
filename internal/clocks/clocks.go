// Package clocks compares the clocks of two hosts by one message there and back, or by the times of files.
//
// This host notes its time before it sends and after it receives. Somewhere between these two moments the other
// host has read its own clock. So the difference of the clocks lies in an interval, and the interval is as long as
// the message was on its way. A long way proves less, and never something wrong.
package clocks

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Offset is the interval that holds the difference of two clocks: the other one's time less this one's.
type Offset struct {
	Least time.Duration `json:"least"`
	Most  time.Duration `json:"most"`
}

// Between returns the offset of a clock that showed this time at a moment between sent and received. The time was
// cut to whole units, such as seconds; 0 means that it was not.
func Between(sent, received, shown time.Time, unit time.Duration) Offset {
	return Offset{Least: shown.Sub(received), Most: shown.Add(unit).Sub(sent)}
}

// Less returns the offset of a third clock: this one is of a clock against ours, and other of the same clock against the
// third one's. It is the third clock's against ours.
func (o Offset) Less(other Offset) Offset {
	return Offset{Least: o.Least - other.Most, Most: o.Most - other.Least}
}

// And returns what two measurements of one clock prove together.
func (o Offset) And(other Offset) Offset {
	return Offset{Least: max(o.Least, other.Least), Most: min(o.Most, other.Most)}
}

// OfDisk returns the clock by which the disk of a directory notes the times of files. On a network disk that is its
// server's.
func OfDisk(dir string, now func() time.Time) (o Offset, err error) {
	made := now()
	f, err := os.CreateTemp(dir, ".clock-")
	if err != nil {
		return o, fmt.Errorf("read the clock of a disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	info, err := f.Stat()
	if err != nil {
		return o, fmt.Errorf("read the clock of a disk: %w", err)
	}
	// The kernel notes the time of its last tick, and some disks whole seconds.
	unit := 10 * time.Millisecond
	if info.ModTime().Nanosecond() == 0 {
		unit = time.Second
	}
	return Between(made, now(), info.ModTime(), unit), nil
}

// Magnitude returns the least difference that the clocks can have. It is 0 if they may agree.
func (o Offset) Magnitude() time.Duration {
	switch {
	case o.Least > 0:
		return o.Least
	case o.Most < 0:
		return -o.Most
	}
	return 0
}

// String describes the other clock: "within 0.5 s of", "at least 3.0 s ahead of", "at least 3.0 s behind".
func (o Offset) String() string {
	const told = 100 * time.Millisecond // the least difference that is printed
	switch {
	case o.Least >= told:
		return fmt.Sprintf("at least %s ahead of", spell(o.Least))
	case o.Most <= -told:
		return fmt.Sprintf("at least %s behind", spell(-o.Most))
	}
	return fmt.Sprintf("within %s of", spell(max(o.Least.Abs(), o.Most.Abs(), told)))
}

// spell rounds a duration to a tenth of a second, or from two minutes on to a second.
func spell(d time.Duration) string {
	if d >= 2*time.Minute {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
