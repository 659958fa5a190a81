package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// secretsName is the directory of the values of secrets, below <shared>/spool.
const secretsName = "secrets"

// SecretsFile is a file with the values of secrets for the job of one submission. Only the account can read it.
type SecretsFile struct {
	// Bundle and Submission are those of the specification (Spec.Submission), also for a file that a killed writer has
	// left. Both are empty for any other file.
	Bundle, Submission string
	// name is the file's.
	name string
}

// secretValues is the content of a SecretsFile.
type secretValues struct {
	Format int               `json:"format"`
	Values map[string]string `json:"values"`
}

func (v secretValues) check() error { return checkFormat(v.Format) }

// secretsFile matches the names of these files, and secretsEntry also those of unpublished ones (package atomicfile).
var (
	secretsFile  = lazyregexp.New(`^0x[0-9a-f]+\.[0-9A-Za-z]+\.[0-9]+$`)
	secretsEntry = lazyregexp.New(`^\.?(0x[0-9a-f]+)\.([0-9A-Za-z]+\.[0-9]+)(?:\.tmp-[0-9]+)?$`)
)

func (l Layout) secrets() string { return filepath.Join(l.spool(), secretsName) }

// secretsPath returns the path of the file for the job of a submission. It fails for names that lead elsewhere.
func (l Layout) secretsPath(bundle, submission string) (string, error) {
	name := bundle + "." + submission
	if !secretsFile().MatchString(name) {
		return "", fmt.Errorf("%q and %q name no submission of a bundle", bundle, submission)
	}
	return filepath.Join(l.secrets(), name), nil
}

// GiveSecrets writes the values of a bundle's secrets for the worker in the job of one submission. A repetition replaces
// the values. The worker removes the file when it begins; the bridge removes it if no worker does (WithdrawSecrets).
func (d Disk) GiveSecrets(bundle, submission string, values map[string]string) error {
	path, err := d.Layout.secretsPath(bundle, submission)
	if err == nil {
		err = os.Mkdir(d.Layout.secrets(), 0o700)
		if errors.Is(err, fs.ErrExist) {
			err = os.Chmod(d.Layout.secrets(), 0o700) // whoever made it
		}
	}
	if err != nil {
		return fmt.Errorf("give secrets: %w", err)
	}
	return atomicfile.WriteJSON(path, secretValues{Format: Format, Values: values})
}

// TakeSecrets reads the values of a bundle's secrets and removes their file. The error is ErrNone if there is none.
func (l Layout) TakeSecrets(bundle, submission string) (map[string]string, error) {
	path, err := l.secretsPath(bundle, submission)
	if err != nil {
		return nil, err
	}
	read, err := readRecord[secretValues](path)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return read.Values, fmt.Errorf("remove the file of secrets: %w", err)
	}
	return read.Values, nil
}

// GivenSecrets lists the files with values of secrets.
func (d Disk) GivenSecrets() ([]SecretsFile, error) {
	entries, err := os.ReadDir(d.Layout.secrets())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no bundle had any
	}
	if err != nil {
		return nil, fmt.Errorf("list files of secrets: %w", err)
	}
	var files []SecretsFile
	for _, e := range entries {
		f := SecretsFile{name: e.Name()}
		if parts := secretsEntry().FindStringSubmatch(e.Name()); parts != nil {
			f.Bundle, f.Submission = parts[1], parts[2]
		}
		files = append(files, f)
	}
	return files, nil
}

// WithdrawSecrets removes a file that GivenSecrets has listed. It may be gone already.
func (d Disk) WithdrawSecrets(f SecretsFile) error {
	err := os.Remove(filepath.Join(d.Layout.secrets(), f.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the file of secrets: %w", err)
	}
	return nil
}
