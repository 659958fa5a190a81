package inputs

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
	"github.com/cl-slurm/cl-slurm/staging/sitepath"
)

// linkRecord has the observations of a link's data, for each part that runs have used; "." is the
// whole.
type linkRecord struct {
	Bundle string              `json:"bundle"`
	Parts  map[string]linkPart `json:"parts"`
}

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
	// maxParts limits the parts of a record, which keeps the last used ones.
	maxParts = 256
	// recordEvery is the largest age of a record of unchanged data.
	recordEvery = time.Hour
)

// locateAndRecord locates the data of a place and records its fingerprint. note, the end of a
// sentence, describes the difference from the first use here. It is empty without a difference.
func (l *Links) locateAndRecord(ctx context.Context, bundle string, place sitepath.Place) (now located, note string, err error) {
	name := path.Clean("./" + place.Below)
	rec, err := l.readRecord(bundle)
	if err != nil {
		return located{}, "", err
	}
	if now, err = l.fingerprints.locate(ctx, l.Now, place, reachOf(rec.Parts[name].First.Fingerprint)); err != nil {
		return located{}, "", err
	}
	seen := linkSeen{At: l.Now().UTC(), Path: place.Path, Fingerprint: now.Fingerprint}
	first, err := l.record(bundle, name, seen)
	if err != nil {
		return located{}, "", err
	}
	day := first.At.Format(time.DateOnly)
	switch {
	case first.Path != seen.Path:
		note = fmt.Sprintf("has moved since it was first used here on %s: the link led to %s then", day, first.Path)
	case differ(first.Fingerprint, seen.Fingerprint):
		note = fmt.Sprintf("has changed since it was first used here on %s: %s", day, describeChange(first.Fingerprint, seen.Fingerprint))
	}
	return now, note, nil
}

// record stores an observation of a part and returns the first one.
func (l *Links) record(bundle, name string, seen linkSeen) (first linkSeen, err error) {
	l.recording.Lock()
	defer l.recording.Unlock()
	rec, err := l.readRecord(bundle)
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
	return part.First, l.writeRecord(rec)
}

// makeRoom drops the least recently used part if there are maxParts.
func (r linkRecord) makeRoom() {
	oldest := ""
	for name, part := range r.Parts {
		if oldest == "" || part.Last.At.Before(r.Parts[oldest].Last.At) {
			oldest = name
		}
	}
	if len(r.Parts) >= maxParts {
		delete(r.Parts, oldest)
	}
}

// readRecord reads a bundle's record. If there is none, or it is damaged, the result is empty: only
// a note depends on it.
func (l *Links) readRecord(bundle string) (linkRecord, error) {
	rec := linkRecord{Bundle: bundle}
	data, err := os.ReadFile(l.Records(bundle))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return rec, fmt.Errorf("read its record: %w", err)
	}
	if err != nil || json.Unmarshal(data, &rec) != nil || rec.Parts == nil {
		rec = linkRecord{Bundle: bundle, Parts: map[string]linkPart{}}
	}
	return rec, nil
}

func (l *Links) writeRecord(rec linkRecord) error {
	at := l.Records(rec.Bundle)
	if err := os.Mkdir(filepath.Dir(at), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write its record: %w", err)
	}
	return atomicfile.WriteJSON(at, rec)
}
