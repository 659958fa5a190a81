package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release holds one release and the options of its build.
type release struct {
	// source is the directory of the sources, out the one to build into.
	source, out string
	// version is the version with its v.
	version string
	// time is the time of all files.
	time      time.Time
	platforms []platform
	// vcs is set if Go shall write the commit into the programs.
	vcs bool
	// key is the path of the SSH key that signs the digests; empty for none.
	key string
	// url is the address of the directory in which the release will lie; empty if that is not known.
	url string
	// stage is a directory for the inputs of archives and packages.
	stage string
}

// platform is a system and an architecture, by Go's names.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// programs returns the programs for a platform: all for Linux, elsewhere only cl.
func (p platform) programs() []string {
	if p.os == "linux" {
		return []string{"cl", "cl-bridge", "cl-server", "cl-worker", "cl-worker-manager", "cl-worker-node"}
	}
	return []string{"cl"}
}

// exe is the name of a program's file.
func (p platform) exe(program string) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

func allPlatforms() []string {
	return []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}
}

func parsePlatform(name string) (platform, error) {
	if !slices.Contains(allPlatforms(), name) {
		return platform{}, fmt.Errorf("there is no release for %q; the platforms are %s", name, strings.Join(allPlatforms(), ", "))
	}
	system, arch, _ := strings.Cut(name, "/")
	return platform{system, arch}, nil
}

// versions are those of semver.org, as packages and Go accept them.
var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?(\+[0-9A-Za-z.]+)?$`)

// askGit sets the version and the time, unless they are given: epoch is the time in seconds.
func (r *release) askGit(ctx context.Context, epoch string) error {
	_, err := r.git(ctx, "rev-parse", "HEAD")
	r.vcs = err == nil
	if r.version == "" {
		if r.version, err = r.describe(ctx); err != nil {
			return fmt.Errorf("find the version, which -version may give: %w", err)
		}
	}
	if !versions.MatchString(r.version) {
		return fmt.Errorf("%q is no version such as v1.2.3 or v1.2.3-rc.1", r.version)
	}
	if epoch == "" {
		if epoch, err = r.git(ctx, "log", "-1", "--format=%ct"); err != nil {
			return fmt.Errorf("find the time, which SOURCE_DATE_EPOCH may give: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("read the time: %w", err)
	}
	r.time = time.Unix(seconds, 0).UTC()
	return nil
}

// describe returns the version of the commit: its tag, or the last one before it with the number
// of commits since and the commit (v1.2.3+4.g0123456), which packages sort after v1.2.3.
func (r *release) describe(ctx context.Context) (string, error) {
	text, err := r.git(ctx, "describe", "--tags", "--match=v[0-9]*", "--abbrev=12", "--dirty=.dirty")
	if err != nil { // there is no tag yet
		count, err := r.git(ctx, "rev-list", "--count", "HEAD")
		if err != nil {
			return "", err
		}
		commit, err := r.git(ctx, "describe", "--always", "--abbrev=12", "--dirty=.dirty", "--exclude=*")
		return "v0.0.0+" + count + ".g" + commit, err
	}
	return versionOf(text), nil
}

// versionOf makes a version of git's description, such as v1.2.3-4-g0123456.
func versionOf(description string) string {
	text, dirty := strings.CutSuffix(description, ".dirty")
	parts := strings.Split(text, "-")
	if n := len(parts); n > 2 && strings.HasPrefix(parts[n-1], "g") {
		text = strings.Join(parts[:n-2], "-") + "+" + parts[n-2] + "." + parts[n-1]
	}
	switch {
	case dirty && strings.Contains(text, "+"):
		return text + ".dirty"
	case dirty:
		return text + "+dirty"
	}
	return text
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	out, err := r.run(ctx, nil, "git", args...)
	return strings.TrimSpace(out), err
}

// run runs a program in the directory of the sources and returns its output.
func (r *release) run(ctx context.Context, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = r.source, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}

// build writes the release.
func (r *release) build(ctx context.Context) (err error) {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if r.stage, err = os.MkdirTemp("", "cl-slurm-release-*"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.stage) }() // a leftover has no meaning
	if err := r.prepare(ctx); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.compile(ctx, p); err != nil {
			return err
		}
		if err := r.archives(p); err != nil {
			return err
		}
		if p.os == "linux" {
			if err := r.packages(p.arch); err != nil {
				return err
			}
		}
	}
	if err := r.installers(); err != nil {
		return err
	}
	if err := r.writeSBOM(); err != nil {
		return err
	}
	return r.writeDigests()
}

// compile builds the programs for a platform into a directory of the stage, if it is not there.
func (r *release) compile(ctx context.Context, p platform) error {
	dir := r.staged(p.String())
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	fmt.Fprintln(os.Stderr, "release: building", r.version, "for", p)
	args := []string{
		"build", "-trimpath", "-buildvcs=" + strconv.FormatBool(r.vcs),
		"-ldflags", "-s -w -buildid= -X github.com/cl-slurm/cl-slurm/cmd/internal/program.release=" + r.version,
		"-o", dir + "/",
	}
	for _, program := range p.programs() {
		args = append(args, "./cmd/"+program)
	}
	// Settings of the machine must not show in the programs.
	env := []string{
		"GOOS=" + p.os, "GOARCH=" + p.arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GO111MODULE=", "GOFIPS140=off",
	}
	_, err := r.run(ctx, env, "go", args...)
	return err
}

// writeDigests writes SHA256SUMS, as sha256sum does.
func (r *release) writeDigests() error {
	names, err := filepath.Glob(filepath.Join(r.out, "*"))
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range names { // Glob sorts them
		sum, err := digest(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, filepath.Base(name))
	}
	return os.WriteFile(filepath.Join(r.out, digests), []byte(sums.String()), 0o644)
}

func digest(name string) (string, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
