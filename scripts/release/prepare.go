package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// The parts of a release: one for researchers, one for clusters and servers.
const (
	client  = "client"
	cluster = "cluster"
)

// parts are the programs of each part.
func parts() map[string][]string {
	return map[string][]string{
		client:  {"cl"},
		cluster: {"cl-bridge", "cl-server", "cl-worker", "cl-worker-manager", "cl-worker-node"},
	}
}

func shells() []string { return []string{"bash", "zsh", "fish"} }

// prepare fills the stage with the files of all platforms: pages/PART/*.1.gz, the manual
// pages; completion/PROGRAM.SHELL; and units/*.service. It builds programs for this machine,
// which write them.
func (r *release) prepare(ctx context.Context) error {
	host := platform{runtime.GOOS, runtime.GOARCH}
	if err := r.compile(ctx, host); err != nil {
		return err
	}
	if err := os.Mkdir(r.staged("completion"), 0o755); err != nil {
		return err
	}
	for part, programs := range parts() {
		plain := r.staged("man", part)
		if err := os.MkdirAll(plain, 0o755); err != nil {
			return err
		}
		for _, p := range programs {
			path := r.staged(host.String(), p)
			env := []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10)}
			if _, err := r.run(ctx, env, path, "man", plain); err != nil {
				return err
			}
			if err := r.completions(ctx, path, p); err != nil {
				return err
			}
		}
		if err := r.compressPages(part); err != nil {
			return err
		}
	}
	return r.units()
}

func (r *release) staged(elem ...string) string {
	return filepath.Join(append([]string{r.stage}, elem...)...)
}

func (r *release) completions(ctx context.Context, path, program string) error {
	for _, shell := range shells() {
		text, err := r.run(ctx, nil, path, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.staged("completion", program+"."+shell), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compressPages compresses the manual pages of a part.
func (r *release) compressPages(part string) error {
	pages, err := filepath.Glob(r.staged("man", part, "*"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.staged("pages", part), 0o755); err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(r.staged("pages", part, filepath.Base(page)+".gz"), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// units writes the units for packages, with programs in /usr/bin, and the user units for archives.
func (r *release) units() error {
	if err := errors.Join(os.Mkdir(r.staged("units"), 0o755), os.Mkdir(r.staged("prefix-units"), 0o755)); err != nil {
		return err
	}
	for _, name := range []string{"cl-bridge.service", "cl-server.service", "cl-worker.service"} {
		text, err := os.ReadFile(filepath.Join(r.source, "scripts", name))
		if err != nil {
			return err
		}
		if !bytes.Contains(text, []byte("=/usr/local/bin/")) {
			return fmt.Errorf("%s names no program in /usr/local/bin", name)
		}
		if err := os.WriteFile(r.staged("prefix-units", name), []byte(anyPrefix(string(text))), 0o644); err != nil {
			return err
		}
		text = []byte(strings.ReplaceAll(string(text), "/usr/local/bin/", "/usr/bin/"))
		if err := os.WriteFile(r.staged("units", name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

var execStart = regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/(.*)$`)

// anyPrefix makes a unit start its program from ~/.local/bin or /usr/local/bin, the prefixes of an archive. systemd
// itself looks in its own directories only (systemd.service(5): COMMAND LINES), and older ones know no ExecSearchPath=.
func anyPrefix(unit string) string {
	return execStart.ReplaceAllStringFunc(unit, func(line string) string {
		command := execStart.FindStringSubmatch(line)[1]
		return `ExecStart=/bin/sh -c 'PATH="$$HOME/.local/bin:/usr/local/bin:$$PATH"; exec ` + strings.ReplaceAll(command, "$", "$$") + `'`
	})
}
