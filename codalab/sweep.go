package codalab

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// A sweep is a worksheet with runs of one command, whose settings differ. Tags tell that, because both servers have
// them: the worksheet has the tag SweepMark, and each run the tag sweep=UUID of the worksheet, followed by one tag
// NAME=VALUE for each of its settings.

const (
	// SweepMark is the tag of a worksheet that is a sweep.
	SweepMark = "sweep"
	// sweepTag begins the tag of a run that belongs to a sweep.
	sweepTag = "sweep="
	// parallelTag begins the tag of a worksheet that bounds how many runs of its sweep are on workers.
	parallelTag = "max-parallel="
)

// The beginnings of other tags that are no settings.
const (
	// CopyTag begins the tag that cl import gives a copy with a uuid of its own. The uuid of the original bundle follows.
	CopyTag = "copy-of="
	// CommitTag and BranchTag begin the tags that cl run --upload gives a run.
	CommitTag = "git-commit="
	BranchTag = "git-branch="
)

// MaxSetting bounds the value of a setting, in bytes. A longer one belongs in a file.
const MaxSetting = 4096

// Setting is a value of a run in a sweep.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

var settingName = lazyregexp.New(`^[a-zA-Z_][a-zA-Z0-9_.-]*$`)

// CheckSettingName refuses a name that no setting may have. The tags of some names mean something else.
func CheckSettingName(name string) error {
	switch {
	case !settingName().MatchString(name) || len(name) > 100:
		return fmt.Errorf("%q cannot name a setting: a name has a letter, then letters, digits and _ . -", name)
	case slices.Contains([]string{sweepTag, resumeTag, parallelTag, CopyTag, CommitTag, BranchTag}, name+"="):
		return fmt.Errorf("a setting cannot be called %s: the tag %s= means something else", name, name)
	}
	return nil
}

// Tag returns the tag of a run that has the setting. Blanks, commas and percent signs are escaped as in addresses,
// because people write tags as words, and searches as lists.
func (s Setting) Tag() string {
	var value strings.Builder
	for _, c := range s.Value {
		if c <= ' ' || c == ',' || c == '%' || c == 0x7f {
			fmt.Fprintf(&value, "%%%02X", c)
		} else {
			value.WriteRune(c)
		}
	}
	return s.Name + "=" + value.String()
}

// SweepTags returns the tags of a run with these settings in a sweep.
func SweepTags(sweep string, settings []Setting) []string {
	tags := []string{sweepTag + sweep}
	for _, s := range settings {
		tags = append(tags, s.Tag())
	}
	return tags
}

// MoveSweep makes a run of one sweep a run of another one, with the same settings, if it is of that sweep.
func (m Metadata) MoveSweep(from, to string) {
	tags := slices.Clone(m.Strings("tags"))
	if i := slices.Index(tags, sweepTag+from); i >= 0 {
		tags[i] = sweepTag + to
		m["tags"] = tags
	}
}

// Sweep returns the uuid of the sweep that a run belongs to; empty if it belongs to none.
func (m Metadata) Sweep() string {
	sweep, _ := m.sweepTags()
	return sweep
}

// Settings returns the settings of a run in a sweep, in their order; nil for other bundles.
func (m Metadata) Settings() []Setting {
	_, tags := m.sweepTags()
	var settings []Setting
	for _, tag := range tags {
		name, value, ok := strings.Cut(tag, "=")
		if !ok || CheckSettingName(name) != nil {
			continue
		}
		if plain, err := url.PathUnescape(value); err == nil {
			value = plain
		}
		settings = append(settings, Setting{name, value})
	}
	return settings
}

// sweepTags returns the sweep of a run, and the tags that follow its tag.
func (m Metadata) sweepTags() (sweep string, rest []string) {
	tags := m.Strings("tags")
	for i, tag := range tags {
		if uuid, ok := strings.CutPrefix(tag, sweepTag); ok && IsUUID(uuid) {
			return uuid, tags[i+1:]
		}
	}
	return "", nil
}

// IsSweep reports whether a worksheet is a sweep.
func (w Worksheet) IsSweep() bool { return slices.Contains(w.Tags, SweepMark) }

// MaxParallel returns the most runs of a sweep that may be on workers at a time, which the tags of its worksheet tell;
// 0 if there is no bound. Of several bounds the lowest counts.
func MaxParallel(tags []string) int {
	bound := 0
	for _, tag := range tags {
		text, ok := strings.CutPrefix(tag, parallelTag)
		if n, err := strconv.ParseUint(text, 10, 31); ok && err == nil && n > 0 && (bound == 0 || int(n) < bound) {
			bound = int(n)
		}
	}
	return bound
}

// WithMaxParallel returns the tags of a sweep's worksheet with another bound; 0 is none.
func WithMaxParallel(tags []string, n int) []string {
	tags = slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return strings.HasPrefix(tag, parallelTag) })
	if n > 0 {
		tags = append(tags, parallelTag+strconv.Itoa(n))
	}
	return tags
}
