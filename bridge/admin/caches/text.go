package caches

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const shortHash = 12

// EntriesText returns entries for people.
func EntriesText(now time.Time, entries []cache.Entry) string {
	rows := [][]string{{"HASH", "KIND", "SIZE", "FILES", "USED", "PINS", "OWNER", "NAME"}}
	for _, e := range entries {
		used, pins := termtext.Ago(now, e.Used), fmt.Sprint(len(e.Pins))
		if e.Retired {
			used, pins = "retired", cmp.Or(joinHolders(e.Pins), "0")
		}
		rows = append(rows, []string{
			e.Hash[:shortHash], e.Kind, codalab.FormatSize(e.Size), fmt.Sprint(e.Files), used, pins, cmp.Or(e.Owner, "-"), termtext.Line(e.ID),
		})
	}
	return termtext.Table(rows)
}

// joinHolders names the holders of a retired content, which keep it on the disk.
func joinHolders(pins []cache.Holder) string {
	var names []string
	for _, h := range pins {
		names = append(names, string(h))
	}
	return strings.Join(names, ",")
}

// Text returns the usage for people.
func (u Usage) Text() string {
	bound := "no bound"
	if u.Size > 0 {
		bound = "of " + codalab.FormatSize(u.Size)
	}
	rows := [][]string{
		{"all", codalab.FormatSize(u.Bytes), fmt.Sprintf("%d entries", u.Entries), bound},
		{"pinned", codalab.FormatSize(u.Pinned)},
		{"leaving, or being made", codalab.FormatSize(u.Leaving)},
		{"free on the disk", codalab.FormatSize(u.Free)},
	}
	for _, kind := range slices.Sorted(maps.Keys(u.Kinds)) {
		rows = append(rows, []string{"kind " + kind, codalab.FormatSize(u.Kinds[kind])})
	}
	for _, owner := range slices.Sorted(maps.Keys(u.Owners)) {
		rows = append(rows, []string{"owner " + cmp.Or(owner, "-"), codalab.FormatSize(u.Owners[owner])})
	}
	return termtext.Table(rows)
}

// PinsText returns pins for people.
func PinsText(now time.Time, pins []cache.Pin) string {
	rows := [][]string{{"HASH", "SINCE", "HOLDER"}}
	for _, pin := range pins {
		rows = append(rows, []string{pin.Hash[:shortHash], termtext.Ago(now, pin.Since), string(pin.Holder)})
	}
	return termtext.Table(rows)
}

// TrimmedText returns for people what a trim did, or with dryRun would do.
func TrimmedText(t cache.Trimmed, dryRun bool) string {
	verb := ""
	if dryRun {
		verb = "would be "
	}
	rows := [][]string{}
	for _, pin := range t.Dropped {
		rows = append(rows, []string{"pin " + verb + "dropped", pin.Hash[:shortHash], string(pin.Holder)})
	}
	for _, e := range t.Retired {
		rows = append(rows, []string{verb + "taken out of use", e.Hash[:shortHash], codalab.FormatSize(e.Size), e.Kind + " " + e.ID})
	}
	for _, path := range t.Swept {
		rows = append(rows, []string{verb + "swept", path})
	}
	rows = append(rows,
		[]string{"removed", fmt.Sprintf("%d entries", t.Removed), codalab.FormatSize(t.Freed)},
		[]string{"left", fmt.Sprintf("%d entries", t.Usage.Entries), codalab.FormatSize(t.Usage.Bytes)})
	return termtext.Table(rows)
}

// VerifiedText returns for people what [Verify] found.
func VerifiedText(list []Verified) string {
	rows := [][]string{}
	var bytes int64
	for _, v := range list {
		if v.Wrong == "" {
			bytes += v.Size
		} else {
			rows = append(rows, []string{v.Hash[:min(shortHash, len(v.Hash))], v.Kind + " " + v.ID, v.Wrong})
		}
	}
	rows = append(rows, []string{fmt.Sprintf("%d entries, %s right", len(list), codalab.FormatSize(bytes))})
	return termtext.Table(rows)
}
