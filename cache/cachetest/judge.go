package cachetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// counts is what a storm did: fills that were begun, published (seen as contents), failed
// as they were to, dropped (whole and never seen); hits of a content that another fill
// made; take-overs (fills that began after another of their key that has not ended);
// errors that are to be expected, by kind; and so on.
type counts map[string]int64

// enough reports whether promises were put to the test: contents were published, got
// by others, read, and removed.
func (c counts) enough() bool {
	return c["published"] > 0 && c["hits"] > 0 && c["reads"] > 0 && c["removed"] > 0
}

// gets is how often a content was got.
func (c counts) gets() int64 { return c["own"] + c["hits"] }

// judge joins the logs of a storm. It returns what was done, and which promises
// were broken. A host may see what is past for as long as settle.
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

// judgement is one that is being made.
type judgement struct {
	sum    counts
	wrong  []string
	settle time.Duration
	open   map[int]map[string]bool // the fills of a key that have begun and not ended
	zones  map[string]*zone        // by fill
}

// zone is what is known of the time for which a fill's content was that of its
// key: it began to be at earliest at filled, it was at begun or before, and at
// last or after. Where begun is before last it was all the time between.
type zone struct {
	key         int
	fill        string
	filled      time.Duration // 0: the fill never returned well
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

// count takes in one record, after all that ended before it.
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

// compare finds zones of one key that meet.
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

// meets reports whether two contents cannot have been there one after the other.
func (z *zone) meets(other *zone) bool {
	within := func(a, b *zone) bool { return b.begun < min(a.begun, a.last) && max(a.begun, a.last) < b.last }
	across := func(a, b *zone) bool {
		return a.begun < a.last && b.begun < b.last && a.begun < b.last && b.begun < a.last
	}
	return across(z, other) || within(z, other) || within(other, z)
}
