package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// renewal is the content of a renewed file.
type renewal struct {
	Token string `json:"token"`
	Count int64  `json:"count"`
	// Ended is set by the last renewal.
	Ended    bool            `json:"ended,omitempty"`
	Document json.RawMessage `json:"document,omitempty"`
}

// directory is the path of the directory with a lease's files.
type directory string

func (d directory) lease(term int64) string { return d.file(leasePrefix, term) }

func (d directory) renewed(term int64) string { return d.file(renewedPrefix, term) }

const leasePrefix, renewedPrefix, suffix = "lease-", "renewed-", ".json"

func (d directory) file(prefix string, term int64) string {
	return filepath.Join(string(d), prefix+strconv.FormatInt(term, 10)+suffix)
}

// termOf returns the number in a file's name; 0 for a file of another kind.
func termOf(name, prefix string) int64 {
	digits, ok := strings.CutPrefix(name, prefix)
	digits, json := strings.CutSuffix(digits, suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || !json || err != nil || n < 0 {
		return 0
	}
	return n
}

// newest returns the result of last, from a fresh listing. An NFS client may show an old listing, but it
// asks the server again after its own changes, so newest changes the directory first.
func (d directory) newest() (term int64, holder Holder, err error) {
	probe, err := atomicfile.Temporary(filepath.Join(string(d), "look"), nil, 0o600)
	if err != nil {
		return 0, Holder{}, err
	}
	_ = os.Remove(probe) // if it fails, a new holder removes it (removeBelow)
	return d.last()
}

// last returns the highest term and its holder; 0 if there is none. A new holder may remove the record
// before last has read it. Then there is a higher term, and last tries again.
func (d directory) last() (term int64, holder Holder, err error) {
	for {
		before := term
		term, err = d.highest()
		if err == nil && term > 0 {
			holder, err = d.holder(term)
		}
		if !errors.Is(err, fs.ErrNotExist) || term <= before {
			return term, holder, err
		}
	}
}

func (d directory) highest() (int64, error) {
	entries, err := os.ReadDir(string(d))
	term := int64(0)
	for _, e := range entries {
		term = max(term, termOf(e.Name(), leasePrefix))
	}
	return term, err
}

func (d directory) holder(term int64) (Holder, error) {
	data, err := os.ReadFile(d.lease(term))
	if err != nil {
		return Holder{}, err
	}
	return decodeHolder(data)
}

func decodeHolder(data []byte) (Holder, error) {
	var h Holder
	err := json.Unmarshal(data, &h)
	if err == nil && h.Token == "" {
		err = errors.New("it has no token")
	}
	if err != nil {
		return h, fmt.Errorf("decode holder: %w", err)
	}
	return h, nil
}

// renewal returns the last renewal of a term; a zero one if there is none yet.
func (d directory) renewal(term int64) (renewal, error) {
	var r renewal
	data, err := os.ReadFile(d.renewed(term))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("decode renewal: %w", err)
	}
	return r, nil
}

// removeBelow removes all files but those of this term and of higher ones.
func (d directory) removeBelow(term int64) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return
	}
	for _, e := range entries {
		if max(termOf(e.Name(), leasePrefix), termOf(e.Name(), renewedPrefix)) < term {
			_ = os.Remove(filepath.Join(string(d), e.Name())) // the next holder tries again
		}
	}
}
