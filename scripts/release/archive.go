package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is a file of an archive.
type file struct {
	// name is its path in the archive, source that on this machine.
	name, source string
}

func (f file) mode() fs.FileMode {
	if path.Dir(f.name) == "bin" || path.Ext(f.name) == ".exe" || path.Ext(f.name) == ".sh" {
		return 0o755
	}
	return 0o644
}

// archives writes the archives of a platform: that with cl alone, and on Linux that with all programs. The only directory of
// one unpacks into a prefix such as /usr/local; those for Windows are flat.
func (r *release) archives(p platform) error {
	if err := r.archive(p, r.archiveName(client, p), client); err != nil || p.os != "linux" {
		return err
	}
	return r.archive(p, r.archiveName("", p), client, cluster)
}

// archiveName is the name of an archive without its suffix; part is client, or empty for all programs.
func (r *release) archiveName(part string, p platform) string {
	name := "cl-slurm"
	if part != "" {
		name += "-" + part
	}
	return fmt.Sprintf("%s_%s_%s", name, strings.TrimPrefix(r.version, "v"), p)
}

// archive writes an archive with the programs of some parts.
func (r *release) archive(p platform, name string, of ...string) error {
	files, err := r.files(p, of)
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	write, suffix := r.writeTar, ".tar.gz"
	if p.os == "windows" {
		write, suffix = r.writeZip, ".zip"
	}
	if err := write(&out, name, files); err != nil {
		return fmt.Errorf("write %s: %w", name+suffix, err)
	}
	return os.WriteFile(filepath.Join(r.out, name+suffix), out.Bytes(), 0o644)
}

// files lists the files of an archive with the programs of some parts.
func (r *release) files(p platform, of []string) ([]file, error) {
	var l listing
	if p.os == "windows" {
		l.put("cl.exe", r.staged(p.String(), "cl.exe"))
		l.put("LICENSE.txt", filepath.Join(r.source, "LICENSE"))
		l.put("researchers.md", filepath.Join(r.source, "docs", "researchers.md"))
		return l.files, l.err
	}
	for _, part := range of {
		programs := parts()[part]
		for _, program := range programs {
			l.put("bin/"+program, r.staged(p.String(), program))
		}
		l.glob("share/man/man1", r.staged("pages", part, "*"))
		for _, program := range programs {
			l.put("share/bash-completion/completions/"+program, r.staged("completion", program+".bash"))
			l.put("share/zsh/site-functions/_"+program, r.staged("completion", program+".zsh"))
			l.put("share/fish/vendor_completions.d/"+program+".fish", r.staged("completion", program+".fish"))
		}
	}
	const doc = "share/doc/cl-slurm"
	l.put(doc+"/LICENSE", filepath.Join(r.source, "LICENSE"))
	if !slices.Contains(of, cluster) {
		l.put(doc+"/researchers.md", filepath.Join(r.source, "docs", "researchers.md"))
		return l.files, l.err
	}
	l.glob(doc, filepath.Join(r.source, "*.md"))
	l.glob(doc+"/docs", filepath.Join(r.source, "docs", "*.md"))
	l.glob(doc+"/docs/operators", filepath.Join(r.source, "docs", "operators", "*.md"))
	l.glob(doc+"/docs/contributors", filepath.Join(r.source, "docs", "contributors", "*.md"))
	l.glob(doc+"/docs", filepath.Join(r.source, "docs", "*.svg"))
	l.put("lib/systemd/system/cl-server.service", filepath.Join(r.source, "scripts", "cl-server.service"))
	// systemd looks in ~/.local/share and /usr/local/share, and not in ~/.local/lib (systemd.unit(5): UNIT FILE LOAD
	// PATH).
	for _, name := range userUnits() {
		l.put(userUnitDir+name, r.staged("prefix-units", name))
	}
	l.put("share/cl-slurm/cl-slurm.rules.yml", filepath.Join(r.source, "scripts", "cl-slurm.rules.yml"))
	l.put("share/cl-slurm/worker.sh", filepath.Join(r.source, "server", "workercode", "worker.sh"))
	l.put("lib/sysusers.d/cl-slurm.conf", filepath.Join(r.source, "scripts", "cl-server.sysusers"))
	return l.files, l.err
}

// userUnitDir is the directory in a prefix in which a user's service manager finds units.
const userUnitDir = "share/systemd/user/"

func userUnits() []string { return []string{"cl-bridge.service", "cl-worker.service"} }

// listing collects files of an archive, and keeps the first error.
type listing struct {
	files []file
	err   error
}

func (l *listing) put(name, source string) { l.files = append(l.files, file{name, source}) }

// glob adds the files of a pattern, of which there must be one, to a directory.
func (l *listing) glob(dir, pattern string) {
	names, err := filepath.Glob(pattern)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no %s", pattern)
	}
	if l.err == nil {
		l.err = err
	}
	for _, name := range names {
		l.put(dir+"/"+filepath.Base(name), name)
	}
}

func (r *release) writeTar(w io.Writer, dir string, files []file) error {
	zw := gzip.NewWriter(w)
	tw := tar.NewWriter(zw)
	for _, f := range files {
		content, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		header := tar.Header{
			Name: path.Join(dir, f.name), Mode: int64(f.mode()), Size: int64(len(content)), ModTime: r.time,
			Uname: "root", Gname: "root",
		}
		if err := tw.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := tw.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

func (r *release) writeZip(w io.Writer, dir string, files []file) error {
	zw := zip.NewWriter(w)
	for _, f := range files {
		content, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		header := zip.FileHeader{Name: path.Join(dir, f.name), Method: zip.Deflate, Modified: r.time}
		header.SetMode(f.mode())
		fw, err := zw.CreateHeader(&header)
		if err != nil {
			return err
		}
		if _, err := fw.Write(content); err != nil {
			return err
		}
	}
	return zw.Close()
}
