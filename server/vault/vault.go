// Package vault encrypts the secrets of users with a key that is in a file outside of the database.
//
// A value is sealed with XChaCha20-Poly1305 and a random nonce. The seal binds it to its user and its name, so that
// nobody who can write to the database can give it to another user or under another name. Whoever has only the
// database, or a backup of it, cannot read the values.
package vault

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// ErrSealed means that a value cannot be read: it was sealed with another key, or has been changed.
var ErrSealed = errors.New("the secret cannot be decrypted with this key")

// Key seals and opens values.
type Key struct {
	id   string
	aead cipher.AEAD
}

// keyMark begins the one line of a key's file. The key follows in base64.
const keyMark = "cl-server-secrets-key-1 "

// parseKey reads the text of a key's file.
func parseKey(text string) (*Key, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), keyMark)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(raw) != chacha20poly1305.KeySize {
		return nil, fmt.Errorf("it has no key of secrets: a line %q and %d bytes in base64", strings.TrimSpace(keyMark), chacha20poly1305.KeySize)
	}
	aead, err := chacha20poly1305.NewX(raw)
	if err != nil {
		return nil, err //nolint:wrapcheck // cannot happen: the length is right
	}
	sum := sha256.Sum256(append([]byte(keyMark), raw...))
	return &Key{id: hex.EncodeToString(sum[:8]), aead: aead}, nil
}

// NewKeyText returns the text of the file of a new key.
func NewKeyText() string {
	raw := make([]byte, chacha20poly1305.KeySize)
	_, _ = rand.Read(raw) // never fails: crypto/rand.Read
	return keyMark + base64.StdEncoding.EncodeToString(raw) + "\n"
}

// ReadKey reads a key from a file, which only its owner may read. The error is fs.ErrNotExist if there is no file.
func ReadKey(path string) (*Key, error) {
	text, err := strictmodes.ReadSecret("secrets' key", path)
	if err != nil {
		return nil, err
	}
	k, err := parseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("read the key of secrets: %s: %w", path, err)
	}
	return k, nil
}

// ID returns a name of the key that does not give it away.
func (k *Key) ID() string { return k.id }

// binding is what a seal binds a value to. Neither ids of users nor names of secrets have a zero byte.
func binding(userID, name string) []byte { return []byte(userID + "\x00" + name) }

// Seal encrypts the value of a user's secret.
func (k *Key) Seal(userID, name, value string) string {
	nonce := make([]byte, k.aead.NonceSize(), k.aead.NonceSize()+len(value)+k.aead.Overhead())
	_, _ = rand.Read(nonce) // never fails: crypto/rand.Read
	return base64.StdEncoding.EncodeToString(k.aead.Seal(nonce, nonce, []byte(value), binding(userID, name)))
}

// Open decrypts the value of a user's secret. The error is ErrSealed.
func (k *Key) Open(userID, name, sealed string) (string, error) {
	data, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil || len(data) < k.aead.NonceSize() {
		return "", ErrSealed
	}
	value, err := k.aead.Open(nil, data[:k.aead.NonceSize()], data[k.aead.NonceSize():], binding(userID, name))
	if err != nil {
		return "", ErrSealed
	}
	return string(value), nil
}

// Vault has the key in a file. It is safe for concurrent use.
type Vault struct {
	// Path is the file. Its directory exists.
	Path string

	mu  sync.Mutex
	key *Key
}

// Key returns the key. The error is fs.ErrNotExist if there is no file yet.
func (v *Vault) Key() (*Key, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.read()
}

// read is Key for a caller that holds v.mu.
func (v *Vault) read() (*Key, error) {
	if v.key != nil {
		return v.key, nil
	}
	k, err := ReadKey(v.Path)
	if err != nil {
		return nil, err
	}
	v.key = k
	return k, nil
}

// Make returns the key, and makes the file if there is none. The file is on the disk before a value can be sealed.
func (v *Vault) Make() (*Key, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k, err := v.read()
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := atomicfile.Write(v.Path, []byte(NewKeyText()), 0o600); err != nil {
		return nil, fmt.Errorf("make the key of secrets: %w", err)
	}
	return v.read()
}
