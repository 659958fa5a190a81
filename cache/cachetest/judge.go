package cachetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// counts counts the events of a storm: fills that were begun, published (a Get returned their
// content), failed on purpose, or dropped (complete, but never returned); hits on other fills'
// contents; take-overs (fills that began while an earlier one of their key had not ended); expected
// errors by kind; and more.
type counts map[string]int64

// enough reports whether the promises were tested: contents were published, got by other processes,
// read, and removed.
func (c counts) enough() bool {
	return c["published"] > 0 && c["hits"] > 0 && c["reads"] > 0 && c["removed"] > 0
}

// gets counts the successful Gets.
func (c counts) gets() int64 { return c["own"] + c["hits"] }

// judge evaluates the logs of a storm. It returns the counts and the broken promises. A host may
// see a state that is settle old.
func judge(records []record, settle time.Duration) (counts, []string) {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Compare(a.End, b.End) })
	j := judgement{settle: max(settle, 0), sum: counts{}, open: map[int]map[string]bool{}, zones: map[string]*zone{}}
	for _, r := range records {
		if r.Wrong != "" {
			j.wrong = append(j.wrong, fmt.Sprintf("process %d: %s", r.Process, r.Wrong))
		}
		j.count(r)
	}
	j.compare()
	return j.sum, j.wrong
}

// judgement is one call of judge.
type judgement struct {
	sum    counts
	wrong  []string
	settle time.Duration
	open   map[int]map[string]bool // the unfinished fills of each key
	zones  map[string]*zone        // by fill
}

// zone bounds the time for which a fill's content was the one of its key. It began not before
// filled, and not after begun. It ended not before last. If begun is before last, the content was
// in use between them without a break.
type zone struct {
	key         int
	fill        string
	filled      time.Duration // 0: the fill did not succeed
	begun, last time.Duration
	seen        bool
}

func (z *zone) String() string {
	return fmt.Sprintf("%s at %v, and still at %v", z.fill, z.begun, z.last)
}

func (j *judgement) zone(r record) *zone {
	z := j.zones[r.Fill]
	if z == nil {
		z = &zone{key: r.Key, fill: r.Fill, begun: math.MaxInt64}
		j.zones[r.Fill] = z
	}
	return z
}

// count takes in one record. Records come in the order of their ends.
func (j *judgement) count(r record) {
	if r.Err != "" && r.Did != didFail {
		j.sum["error "+r.Err]++
	}
	switch r.Did {
	case didGet:
		j.got(r)
	case didFill:
		j.sum["fills"]++
		if len(j.open[r.Key]) > 0 {
			j.sum["take-overs"]++
		} else {
			j.open[r.Key] = map[string]bool{}
		}
		j.open[r.Key][r.Fill] = true
	case didFilled:
		j.sum["resumed bytes"] += r.Bytes
		j.zone(r).filled = r.End
		delete(j.open[r.Key], r.Fill)
	case didFail:
		j.sum["failed"]++
		delete(j.open[r.Key], r.Fill)
	case didRead:
		j.sum["reads"]++
		j.sum["read bytes"] += r.Bytes
	case didTrim:
		j.sum["trims"]++
		j.sum["removed"] += int64(r.N)
	}
}

func (j *judgement) got(r record) {
	if r.Fill == "" {
		return
	}
	z := j.zone(r)
	begin := r.Begin - j.settle
	switch {
	case z.key != r.Key:
		j.wrong = append(j.wrong, fmt.Sprintf("process %d: key %d has the content of fill %s, which is of key %d", r.Process, r.Key, r.Fill, z.key))
	case z.filled == 0:
		j.wrong = append(j.wrong, fmt.Sprintf("process %d: key %d has the content of fill %s, which has not ended well", r.Process, r.Key, r.Fill))
	case r.Own:
		begin = z.filled
		j.sum["own"]++
	default:
		j.sum["hits"]++
	}
	if z.filled != 0 {
		begin = max(begin, z.filled)
	}
	z.seen, z.begun, z.last = true, min(z.begun, r.End), max(z.last, begin)
}

// compare finds overlapping zones of one key.
func (j *judgement) compare() {
	byKey := map[int][]*zone{}
	for _, z := range j.zones {
		switch {
		case z.seen:
			j.sum["published"]++
			byKey[z.key] = append(byKey[z.key], z)
		case z.filled != 0:
			j.sum["dropped"]++
		}
	}
	for key, zones := range byKey {
		slices.SortFunc(zones, func(a, b *zone) int { return cmp.Compare(a.fill, b.fill) })
		for i, a := range zones {
			for _, b := range zones[i+1:] {
				if a.meets(b) {
					j.wrong = append(j.wrong, fmt.Sprintf("key %d: two fills were both published at once: %v; %v", key, a, b))
				}
			}
		}
	}
}

// meets reports whether two contents cannot have been in use one after the other.
func (z *zone) meets(other *zone) bool {
	within := func(a, b *zone) bool { return b.begun < min(a.begun, a.last) && max(a.begun, a.last) < b.last }
	across := func(a, b *zone) bool {
		return a.begun < a.last && b.begun < b.last && a.begun < b.last && b.begun < a.last
	}
	return across(z, other) || within(z, other) || within(other, z)
}
