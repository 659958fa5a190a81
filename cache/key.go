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

// Key names a content by its request, before the content is known.
type Key struct {
	// Kind groups entries for people and for limits, such as "sif" and "bundle". It has lower-case
	// letters, digits and dashes.
	Kind string `json:"kind"`
	// ID is the whole request as canonical text: equal requests have equal texts, and requests
	// whose contents may differ have different texts.
	ID string `json:"id"`
}

// String returns the key for messages.
func (k Key) String() string { return fmt.Sprintf("%s %q", k.Kind, k.ID) }

// Holder names the row of a ledger, the Slurm job or the person that needs an entry. It has at most
// 128 letters, digits and characters of "._@-", the first a letter or digit, because it becomes
// part of a file's name.
type Holder string

func (h Holder) check() error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if h == "" || len(h) > 128 || strings.Trim(string(h), letters+"._@-") != "" || !strings.Contains(letters, string(h[0])) {
		return fmt.Errorf("cache: %q is not a name for a holder", string(h))
	}
	return nil
}

// Want is a request for an entry.
type Want struct {
	Key Key
	// Holder gets a pin of the content. Without one, the content may be removed after
	// Options.Settle.
	Holder Holder
	// The entry counts against Owner's quota if this request makes it.
	Owner string
	// Size is the expected size of the content in bytes. The fill waits for that much room, and
	// counts it from its begin. If Size is 0, the content counts from the end of the fill.
	Size int64
	// Resume lets the fill continue from the leftover of an earlier fill of the key that failed or
	// was killed.
	Resume bool
	// Private hides the content from other users in a group's cache. Another user's request for the
	// same key makes another entry.
	Private bool
	// While another process makes the entry, Get calls Waiting repeatedly with the name of that
	// process. Of several callers in this process, only the first one's Waiting is called. Waiting
	// may be nil.
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

// entryNames holds the names of a key's files.
type entryNames struct {
	key     Key
	private bool
	hash    string // of the key, for the names of files
	dir     string // of the record and the content
}

// namesOf returns the names of a key's files. A private key's are different for each user.
func (c *Cache) namesOf(key Key, private bool) entryNames {
	text := key.Kind + "\x00" + key.ID
	if private = private && c.o.Group; private {
		text += "\x00" + strconv.Itoa(os.Geteuid())
	}
	sum := sha256.Sum256([]byte(text))
	hash := hex.EncodeToString(sum[:])
	return entryNames{key: key, private: private, hash: hash, dir: filepath.Join(c.dir, key.Kind, hash[:2])}
}

// record returns the path of the key's standing record.
func (e entryNames) record() string { return filepath.Join(e.dir, e.hash+recordSuffix) }

// fillDir returns the path of the directory in which a fill makes its content.
func (e entryNames) fillDir(token string) string { return filepath.Join(e.dir, e.hash+"."+token) }

// firstName returns the first path of a content's record, which exists from before the fill until
// the record is published.
func (e entryNames) firstName(token string) string {
	return filepath.Join(e.dir, e.id(token)+recordSuffix)
}

func (e entryNames) content(token string) string { return filepath.Join(e.fillDir(token), contentName) }

// id names one content of a key.
func (e entryNames) id(token string) string { return e.hash + "." + token }

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

// Lengths in hexadecimal digits.
const (
	hashLength  = 2 * sha256.Size
	tokenLength = 32
)

// splitID splits the id of a content.
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

// ownerName encodes an owner for a file's name. It shortens long ones.
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
