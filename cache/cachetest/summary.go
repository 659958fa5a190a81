package cachetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Summary is what a storm did.
type Summary struct {
	Processes, Kills, Stops int
	// Fills were begun; Published were seen as contents, Failed failed as they
	// were to, Dropped were whole and never seen.
	Fills, Published, Failed, Dropped int
	// Resumed are bytes that a fill found of an earlier one.
	Resumed int64
	// Hits are contents that were got without a fill of one's own, Waits those
	// of them for which another process was waited for.
	Hits, Waits int
	// TakeOvers are fills that began after another of their key that has not
	// ended.
	TakeOvers int
	// Reads compared Bytes bytes.
	Reads int
	Bytes int64
	// Outlived are entries that were read after their holder's process died.
	Outlived int
	// Trims removed Removed entries.
	Trims, Removed int
	// Most is what the auditor saw on the disk at once, in so many Audits.
	Most, Quota int64
	Audits      int
	// Errors counts those that are to be expected, by kind.
	Errors map[string]int
}

// enough says that promises were put to the test: contents were published, got
// by others, and read.
func (s Summary) enough() bool { return s.Published > 0 && s.Hits > 0 && s.Reads > 0 }

// String is one line.
func (s Summary) String() string {
	kinds := make([]string, 0, len(s.Errors))
	for _, k := range slices.Sorted(maps.Keys(s.Errors)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, s.Errors[k]))
	}
	return fmt.Sprintf("%d processes, %d killed, %d stopped; %d fills: %d published, %d failed, %d dropped, %d take-overs, %.1f MiB resumed; "+
		"%d hits, %d waits; %d reads, %.1f MiB verified, %d outlived; %d trims, %d removed; at most %.1f of %.1f MiB in %d audits; errors: %s",
		s.Processes, s.Kills, s.Stops, s.Fills, s.Published, s.Failed, s.Dropped, s.TakeOvers, mib(s.Resumed),
		s.Hits, s.Waits, s.Reads, mib(s.Bytes), s.Outlived, s.Trims, s.Removed, mib(s.Most), mib(s.Quota), s.Audits, strings.Join(kinds, ", "))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
