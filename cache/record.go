package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// format is the version of the records and of the layout in docs/contributors/cache.md.
const format = 1

// record makes one content of a key known. It is published whole, and never changes.
type record struct {
	Format int `json:"format"`
	Key
	// Token names this content among all that were ever made for the key.
	Token string `json:"token"`
	// Digest is the SHA-256 of a file, or of a directory's tree (see digest).
	Digest  string    `json:"digest"`
	Dir     bool      `json:"dir,omitempty"`
	Size    int64     `json:"size"`
	Files   int64     `json:"files"`
	Owner   string    `json:"owner,omitempty"`
	Private bool      `json:"private,omitempty"`
	Made    time.Time `json:"made"`
	// Took is the duration of the fill, in seconds.
	Took float64 `json:"took"`
}

// errForeign means a record that another version of this program wrote.
var errForeign = errors.New("written by another version")

func decodeRecord(data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, err
	}
	if r.Format != format {
		return record{}, fmt.Errorf("%w: format %d, want %d", errForeign, r.Format, format)
	}
	if !isHex(r.Token, tokenLength) {
		return record{}, errors.New("no token")
	}
	return r, nil
}

func (r record) encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// ErrDamaged means that a content differs from its record.
var ErrDamaged = errors.New("damaged")

// readEntry reads the standing record of a key and checks that its content exists. It returns
// fs.ErrNotExist if this host sees no record, and ErrDamaged with the record if the content differs
// from it.
func (c *Cache) readEntry(e entryNames) (record, error) {
	data, err := readFile(e.record())
	if err != nil {
		return record{}, err
	}
	r, err := decodeRecord(data)
	if errors.Is(err, errForeign) {
		return r, fmt.Errorf("record %s: %w", e.record(), err)
	}
	if err != nil {
		return r, fmt.Errorf("%w: record %s: %w", ErrDamaged, e.record(), err)
	}
	info, err := os.Lstat(e.content(r.Token))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, fmt.Errorf("%w: its content is missing", ErrDamaged)
	case err != nil:
		return r, fmt.Errorf("look at the content: %w", err)
	case r.Dir != info.IsDir(), !r.Dir && info.Size() != r.Size:
		return r, fmt.Errorf("%w: its content has changed", ErrDamaged)
	}
	return r, nil
}

// readFile reads a small file. It looks the name up again if another host replaced or removed the
// file (ESTALE).
func readFile(name string) (data []byte, err error) {
	for range 3 {
		if data, err = os.ReadFile(name); !errors.Is(err, syscall.ESTALE) {
			return data, err
		}
	}
	return nil, fs.ErrNotExist
}
