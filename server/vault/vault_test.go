package vault_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/server/vault"
)

// newKey returns the key of a new file.
func newKey(t *testing.T) *vault.Key {
	t.Helper()
	k, err := (&vault.Vault{Path: filepath.Join(t.TempDir(), "key")}).Make()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSecretIsOpenedOnlyUnderItsUserAndName(t *testing.T) {
	t.Parallel()
	k := newKey(t)
	const value = "correct horse\n"
	sealed := k.Seal("0xann", "A", value)
	if got, err := k.Open("0xann", "A", sealed); err != nil || got != value {
		t.Errorf("%q, %v", got, err)
	}
	if again := k.Seal("0xann", "A", value); again == sealed {
		t.Error("the same value gives the same text twice")
	}
	changed := []byte(sealed)
	changed[len(changed)/2] ^= 1
	for name, open := range map[string]func() (string, error){
		"of another user":  func() (string, error) { return k.Open("0xben", "A", sealed) },
		"of another name":  func() (string, error) { return k.Open("0xann", "B", sealed) },
		"with another key": func() (string, error) { return newKey(t).Open("0xann", "A", sealed) },
		"changed":          func() (string, error) { return k.Open("0xann", "A", string(changed)) },
		"cut off":          func() (string, error) { return k.Open("0xann", "A", sealed[:8]) },
		"empty":            func() (string, error) { return k.Open("0xann", "A", "") },
	} {
		if got, err := open(); !errors.Is(err, vault.ErrSealed) || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestKeyIsMadeOnceAndOnlyItsOwnerMayReadIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	v := &vault.Vault{Path: path}
	if _, err := v.Key(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before the first secret: %v", err)
	}
	k, err := v.Make()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), k.ID()) {
		t.Fatalf("the id %s is a part of the key, or %v", k.ID(), err)
	}
	other := &vault.Vault{Path: path}
	if again, err := other.Make(); err != nil || again.ID() != k.ID() {
		t.Fatalf("made again: %v", err)
	}
	for says, spoil := range map[string]func(path string) error{
		"chmod 600 it":                   func(path string) error { return os.Chmod(path, 0o640) },
		"it has no key of secrets":       func(path string) error { return os.WriteFile(path, []byte("cl-server-secrets-key-1 eA==\n"), 0o600) },
		"it has no key of secrets: a li": func(path string) error { return os.WriteFile(path, text[4:], 0o600) },
	} {
		bad := filepath.Join(t.TempDir(), "key")
		if err := errors.Join(os.WriteFile(bad, text, 0o600), spoil(bad)); err != nil {
			t.Fatal(err)
		}
		if _, err := (&vault.Vault{Path: bad}).Make(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}
