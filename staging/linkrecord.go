package staging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/spool"
)

// linkRecord is what a bundle that is a link was seen to be, by the part of it
// that runs used; "." is the whole.
type linkRecord struct {
	Bundle string              `json:"bundle"`
	Parts  map[string]linkPart `json:"parts"`
}

// linkPart is what was first and what was last seen of a part.
type linkPart struct {
	First linkSeen `json:"first"`
	Last  linkSeen `json:"last"`
}

type linkSeen struct {
	At   time.Time `json:"at"`
	Path string    `json:"path"`
	spool.Fingerprint
}

const (
	// mostParts bounds a record: it keeps those that were used last.
	mostParts = 256
	// recordEvery is how old a record of what has not changed may be.
	recordEvery = time.Hour
)

// seen looks at a spot and records it. note says how it differs from when it
// was first used; it is the end of a sentence.
func (p *InPlace) seen(ctx context.Context, bundle string, s spot) (now sight, note string, err error) {
	name := path.Clean("./" + s.below)
	rec, err := p.read(bundle)
	if err != nil {
		return sight{}, "", err
	}
	s.reach = reach(rec.Parts[name].First.Fingerprint)
	if now, err = p.looks.look(ctx, p.Now, s); err != nil {
		return sight{}, "", err
	}
	seen := linkSeen{At: p.Now().UTC(), Path: s.link, Fingerprint: now.print}
	first, err := p.record(bundle, name, seen)
	if err != nil {
		return sight{}, "", err
	}
	day := first.At.Format(time.DateOnly)
	switch {
	case first.Path != seen.Path:
		note = fmt.Sprintf("is not where it was when it was first used here on %s: it was a link to %s then", day, first.Path)
	case differs(first.Fingerprint, seen.Fingerprint):
		note = fmt.Sprintf("has changed since it was first used here on %s: %s", day, change(first.Fingerprint, seen.Fingerprint))
	}
	return now, note, nil
}

// record keeps what was seen of a part and returns what was seen first.
func (p *InPlace) record(bundle, name string, seen linkSeen) (first linkSeen, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec, err := p.read(bundle)
	if err != nil {
		return first, err
	}
	part, known := rec.Parts[name]
	if known && part.Last.Path == seen.Path && part.Last.Digest == seen.Digest && seen.At.Sub(part.Last.At) < recordEvery {
		return part.First, nil
	}
	if !known {
		part.First = seen
		rec.makeRoom()
	}
	part.Last = seen
	rec.Parts[name] = part
	return part.First, p.write(rec)
}

// makeRoom drops the part that was used longest ago where there are as many as
// may be.
func (r linkRecord) makeRoom() {
	oldest := ""
	for name, part := range r.Parts {
		if oldest == "" || part.Last.At.Before(r.Parts[oldest].Last.At) {
			oldest = name
		}
	}
	if len(r.Parts) >= mostParts {
		delete(r.Parts, oldest)
	}
}

// read reads a bundle's record. One that is not there, or is no record, is
// empty: all that depends on it is a note.
func (p *InPlace) read(bundle string) (linkRecord, error) {
	rec := linkRecord{Bundle: bundle}
	data, err := os.ReadFile(p.Records(bundle))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return rec, fmt.Errorf("read its record: %w", err)
	}
	if err != nil || json.Unmarshal(data, &rec) != nil || rec.Parts == nil {
		rec = linkRecord{Bundle: bundle, Parts: map[string]linkPart{}}
	}
	return rec, nil
}

func (p *InPlace) write(rec linkRecord) error {
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode its record: %w", err)
	}
	at := p.Records(rec.Bundle)
	if err := os.Mkdir(filepath.Dir(at), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write its record: %w", err)
	}
	return atomicfile.Write(at, append(data, '\n'), 0o600)
}
