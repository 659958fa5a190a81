package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Entry describes a content of a cache.
type Entry struct {
	Key
	// Hash names the key in file names and in a Pin.
	Hash string `json:"hash"`
	// Path is the path of the content.
	Path    string    `json:"path"`
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"`
	Files   int64     `json:"files"`
	Owner   string    `json:"owner,omitempty"`
	Private bool      `json:"private,omitempty"`
	Made    time.Time `json:"made"`
	// Took is the duration of the fill, in seconds.
	Took float64 `json:"took"`
	// Used is the time of the last use, give or take some minutes.
	Used time.Time `json:"used"`
	// Pins lists the holders of its pins.
	Pins []Holder `json:"pins"`
	// Retired is set if the content is out of use. The key may have another content in use.
	Retired bool `json:"retired,omitempty"`
}

// Entries lists the entries in use, in no order, and reads a record for each. It omits unreadable
// records, which Verify finds.
func (c *Cache) Entries(ctx context.Context) ([]Entry, error) {
	pins, err := c.listPinned()
	if err != nil {
		return nil, fmt.Errorf("list entries: %w", err)
	}
	list := []Entry{}
	err = c.shards(ctx, func(s shard) error {
		for _, hash := range s.records {
			if e, ok := s.read(hash); ok {
				e.Pins = pins.holders(hash, e.token(), true)
				list = append(list, e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list entries: %w", err)
	}
	return list, nil
}

// Retired lists the contents that are out of use and still on the disk, because they have holders
// or must settle. Their Used is the time at which the record was made, or last used before it was
// retired.
func (c *Cache) Retired() ([]Entry, error) {
	records, _, err := c.listRetired()
	if err != nil {
		return nil, fmt.Errorf("list retired contents: %w", err)
	}
	pins, err := c.listPinned()
	if err != nil {
		return nil, fmt.Errorf("list retired contents: %w", err)
	}
	list := []Entry{}
	for _, r := range records {
		e, rec, err := c.readRetired(r)
		if err != nil {
			continue // it is gone, or the sweep removes it
		}
		found, ok := rec.entry(e, c.retiredPath(r.name))
		if ok {
			found.Retired = true
			found.Pins = pins.holders(r.hash, rec.Token, false)
			list = append(list, found)
		}
	}
	return list, nil
}

// shard is one of the directories with entries.
type shard struct {
	dir     string
	names   []string
	records []string // of the keys with a standing record
}

// read reads a record as an entry, without pins.
func (s shard) read(hash string) (Entry, bool) {
	path := filepath.Join(s.dir, hash+recordSuffix)
	data, err := readFile(path)
	if err != nil {
		return Entry{}, false
	}
	r, err := decodeRecord(data)
	if err != nil {
		return Entry{}, false
	}
	return r.entry(entryNames{hash: hash, dir: s.dir}, path)
}

// entry returns the entry of the record in the file at path, without pins.
func (r record) entry(e entryNames, path string) (Entry, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return Entry{}, false
	}
	return Entry{
		Key: r.Key, Hash: e.hash, Path: e.content(r.Token), Digest: r.Digest,
		Size: r.Size, Files: r.Files, Owner: r.Owner, Private: r.Private, Made: r.Made, Took: r.Took, Used: info.ModTime(),
	}, true
}

// DigestOf returns the digest of a content from its record, and whether the content is a directory. path is a path that Get has
// returned. The digest is empty if the content is out of use, or its record cannot be read.
func (c *Cache) DigestOf(path string) (digest string, isDir bool) {
	fillDir := filepath.Dir(path)
	hash, token, err := splitID(filepath.Base(fillDir))
	if err != nil {
		return "", false
	}
	data, err := readFile(filepath.Join(filepath.Dir(fillDir), hash+recordSuffix))
	if err != nil {
		return "", false
	}
	r, err := decodeRecord(data)
	if err != nil || r.Token != token {
		return "", false
	}
	return r.Digest, r.Dir
}

// token returns the token of an entry's content.
func (e Entry) token() string {
	_, token, _ := splitID(filepath.Base(filepath.Dir(e.Path)))
	return token
}

// shards calls visit for each directory with entries. It skips directories that vanish or that this
// user may not read.
func (c *Cache) shards(ctx context.Context, visit func(shard) error) error {
	kinds, err := c.kinds()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		dirs, err := subdirectories(filepath.Join(c.dir, kind))
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, d := range dirs {
			if !isHex(d, 2) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			s, err := readShard(filepath.Join(c.dir, kind, d))
			if err == nil {
				err = visit(s)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// kinds lists the directories whose names may be kinds.
func (c *Cache) kinds() ([]string, error) {
	names, err := subdirectories(c.dir)
	return slices.DeleteFunc(names, func(kind string) bool { return Want{Key: Key{Kind: kind}}.check() != nil }), err
}

func readShard(dir string) (shard, error) {
	names, err := readNames(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return shard{dir: dir}, nil
	}
	s := shard{dir: dir, names: names}
	for _, name := range names {
		if hash, ok := strings.CutSuffix(name, recordSuffix); ok && isHex(hash, hashLength) {
			s.records = append(s.records, hash)
		}
	}
	return s, err
}

func subdirectories(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
