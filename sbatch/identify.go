package sbatch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Identify returns the program at a path with its digest and its stamp. It reads the file, unless it is still the one of
// known, an earlier result.
func Identify(path string, known Program) (Program, error) {
	f, err := os.Open(path)
	if err != nil {
		return Program{}, fmt.Errorf("identify program: %w", err)
	}
	p, err := identify(f, known)
	if err := errors.Join(err, f.Close()); err != nil {
		return Program{}, fmt.Errorf("identify program %s: %w", path, err)
	}
	return p, nil
}

func identify(f *os.File, known Program) (Program, error) {
	p := Program{Path: f.Name()}
	info, err := f.Stat()
	if err != nil {
		return p, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		p.Stamp = fmt.Sprintf("%d %d %d.%09d", stat.Ino, stat.Size, stat.Ctim.Sec, stat.Ctim.Nsec)
	}
	if p.Stamp != "" && known.SHA256 != "" && known.Path == p.Path && known.Stamp == p.Stamp {
		return known, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return p, err
	}
	p.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return p, nil
}
