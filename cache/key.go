package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Key names content by what was asked for, before it is known.
type Key struct {
	// Kind sorts entries for people and for limits: "sif", "bundle". It is
	// made of lower-case letters, digits and dashes.
	Kind string `json:"kind"`
	// ID is the whole request as one canonical text: equal requests have equal
	// texts, and content that may differ has a different text.
	ID string `json:"id"`
}

// String gives the key for messages.
func (k Key) String() string { return fmt.Sprintf("%s %q", k.Kind, k.ID) }

// Holder names what needs an entry, and so why it is pinned: a row of a ledger, a
// Slurm job, a person. It is a word that may stand in a file's name:
// letters, digits and "._@-", at most 128 of them, the first a letter or digit.
type Holder string

func (h Holder) check() error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if h == "" || len(h) > 128 || strings.Trim(string(h), letters+"._@-") != "" || !strings.Contains(letters, string(h[0])) {
		return fmt.Errorf("cache: %q is no name of a holder", string(h))
	}
	return nil
}

// Want is a request for an entry.
type Want struct {
	Key Key
	// Holder gets a pin of the content. Without one, the content may go after
	// Options.Settle.
	Holder Holder
	// Owner is the owner of the quota that the entry counts against, if it has
	// to be made.
	Owner string
	// Size is what the content will take, in bytes, where that is known
	// beforehand: it counts from the begin of the fill, which waits for room. 0
	// has it count from its end.
	Size int64
	// Resume lets a fill find what an earlier one of the key has left that failed
	// or was killed.
	Resume bool
	// Private keeps the content to this user in a cache that a group shares.
	// Another user's request for the same key has an entry of its own.
	Private bool
	// Waiting, if it is set, is called now and then while another process makes
	// the entry, with the name of that process. Only the Waiting of the first caller
	// of this process is called.
	Waiting func(by string)
}

func (w Want) check() error {
	k := w.Key.Kind
	if k == "" || strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || slices.Contains(places(), k) {
		return fmt.Errorf("cache: %q is not a kind", k)
	}
	if w.Holder == "" {
		return nil
	}
	return w.Holder.check()
}

// entry is a key's place in a cache.
type entry struct {
	key     Key
	private bool
	hash    string // names the key in the file system
	dir     string // holds the record and the content
}

func (c *Cache) entry(key Key, private bool) entry {
	text := key.Kind + "\x00" + key.ID
	if private = private && c.o.Group; private {
		text += "\x00" + strconv.Itoa(os.Geteuid())
	}
	sum := sha256.Sum256([]byte(text))
	hash := hex.EncodeToString(sum[:])
	return entry{key: key, private: private, hash: hash, dir: filepath.Join(c.dir, key.Kind, hash[:2])}
}

// record is the path of the record that makes the content of a key known.
func (e entry) record() string { return filepath.Join(e.dir, e.hash+recordSuffix) }

// object is the path of the directory in which a fill makes its content; content is
// the path of the content.
func (e entry) object(token string) string { return filepath.Join(e.dir, e.hash+"."+token) }

// firstName is the path that the record of a content has first, from before the
// fill until the record is published.
func (e entry) firstName(token string) string {
	return filepath.Join(e.dir, e.id(token)+recordSuffix)
}

func (e entry) content(token string) string { return filepath.Join(e.object(token), contentName) }

// id names one content of a key.
func (e entry) id(token string) string { return e.hash + "." + token }

// Names in a cache's directory.
const (
	recordSuffix = ".json"
	contentName  = "content"
	trashPrefix  = ".trash-"
	probePrefix  = ".probe-"

	leasesPlace  = "leases"
	pinsPlace    = "pins"
	sizesPlace   = "sizes"
	retiredPlace = "retired"
)

func places() []string { return []string{leasesPlace, pinsPlace, sizesPlace, retiredPlace} }

func (c *Cache) place(name string) string { return filepath.Join(c.dir, name) }

// hashLength and tokenLength are those of the names that entry makes.
const (
	hashLength  = 2 * sha256.Size
	tokenLength = 32
)

// splitID takes the id of a content apart.
func splitID(id string) (hash, token string, err error) {
	hash, token, ok := strings.Cut(id, ".")
	if !ok || !isHex(hash, hashLength) || !isHex(token, tokenLength) {
		return "", "", errors.New("not the name of a content")
	}
	return hash, token, nil
}

func isHex(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}

// ownerName is an owner as a part of a file's name. A long one is cut.
func ownerName(owner string) string {
	name := url.QueryEscape(owner)
	if len(name) > 100 {
		sum := sha256.Sum256([]byte(owner))
		name = name[:80] + hex.EncodeToString(sum[:8])
	}
	return name
}

func ownerOf(name string) string {
	owner, err := url.QueryUnescape(name)
	if err != nil {
		return name
	}
	return owner
}
