// Package importtest has a small lab of CodaLab's own server for tests of its import: a database in MariaDB, and
// contents on the disk.
package importtest

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	_ "embed" // of the statements
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

//go:embed tables.sql
var tables string

//go:embed lab.sql
var rows string

// Password is the password of the users.
const Password = "old secret"

// Lab is a lab.
type Lab struct {
	// URL is the database's.
	URL string
	// Home is the server's directory, with two partitions.
	Home string
}

// UUID returns the identifier that ends with these digits, such as e1 for the first bundle.
func UUID(digits string) string { return "0x" + strings.Repeat("0", 32-len(digits)) + digits }

// New makes a lab with a database of this name.
func New(tb testing.TB, m *testenv.MariaDB, name string) Lab {
	tb.Helper()
	sum, err := pbkdf2.Key(sha256.New, Password, []byte("salt"), 100, 32)
	testenv.Must(tb, err)
	hash := "pbkdf2_sha256$100$salt$" + base64.StdEncoding.EncodeToString(sum)
	l := Lab{URL: m.Database(tb, name, tables+strings.ReplaceAll(rows, "HASH", hash)), Home: tb.TempDir()}
	l.Write(tb, "one", "e1/b", "words\n")
	l.Write(tb, "one", "e1/sub/run.sh", "#!/bin/sh\n")
	first := l.path("one", "e1")
	testenv.Must(tb, os.Chmod(filepath.Join(first, "sub/run.sh"), 0o755))
	testenv.Must(tb, os.Symlink("b", filepath.Join(first, "link")))
	testenv.Must(tb, os.Symlink("/nowhere", filepath.Join(first, "broken")))
	testenv.Must(tb, syscall.Mkfifo(filepath.Join(first, "pipe"), 0o600))
	testenv.Must(tb, os.Mkdir(filepath.Join(first, "empty"), 0o500))
	l.Write(tb, "two", "e2", "a file")
	l.Write(tb, "two", "e3/stdout", "")
	l.Write(tb, "two", "e4/partial", "of a run")
	l.Write(tb, "two", "ec/w", strings.Repeat("x", 5000))
	l.Write(tb, "two", "bad", "of a bundle that is gone")
	return l
}

// path is that of a bundle's contents, or of a file in them.
func (l Lab) path(partition, file string) string {
	bundle, below, _ := strings.Cut(file, "/")
	return filepath.Join(l.Home, "partitions", partition, "bundles", UUID(bundle), below)
}

// Write writes a file of the contents in a partition. Its path begins with the last digits of the bundle's uuid.
func (l Lab) Write(tb testing.TB, partition, file, content string) {
	tb.Helper()
	path := l.path(partition, file)
	testenv.Must(tb, os.MkdirAll(filepath.Dir(path), 0o755))
	testenv.Must(tb, os.WriteFile(path, []byte(content), 0o640))
}
