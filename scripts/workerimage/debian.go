package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// debian is a place with Debian's packages.
type debian struct{ suite, mirror, security string }

// keyring has the keys by which apt checks the packages.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// whole are the packages that the image has with all that they depend on: the programs of the built-in runtime.
func whole() []string {
	return []string{"bubblewrap", "slirp4netns", "squashfs-tools", "squashfuse"}
}

// parts are packages of which the image has some files only. The worker starts its runs by a shell, reaches their
// ports by nsenter, and unpacks layers by xz. Root's runs have more than one user id by newuidmap and newgidmap, which
// need four libraries. Scanners read Debian's version.
func parts() map[string][]string {
	return map[string][]string{
		"libaudit1":       {"usr/lib/"},
		"libbsd0":         {"usr/lib/"},
		"libcap-ng0":      {"usr/lib/"},
		"libmd0":          {"usr/lib/"},
		"uidmap":          {"usr/bin/newuidmap", "usr/bin/newgidmap"},
		"base-files":      {"usr/lib/os-release", "etc/os-release", "etc/debian_version"},
		"ca-certificates": {"usr/share/ca-certificates/mozilla/"},
		"dash":            {"usr/bin/dash"},
		"util-linux":      {"usr/bin/nsenter"},
		"xz-utils":        {"usr/bin/xz"},
	}
}

// pkg is a package's file.
type pkg struct {
	name, version, file string
	control             []byte // its description
}

// fetch gets the packages for an architecture, sorted by name. dir becomes apt's own.
func (d debian) fetch(ctx context.Context, architecture, dir string) ([]pkg, error) {
	if err := checkHost(); err != nil {
		return nil, err
	}
	env, err := d.configure(ctx, architecture, dir)
	if err != nil {
		return nil, err
	}
	some := make([]string, 0, len(parts()))
	for name := range parts() {
		some = append(some, name)
	}
	slices.Sort(some)
	archives := filepath.Join(dir, "cache", "archives")
	for _, args := range [][]string{
		{"update", "--error-on=any"},
		append([]string{"install", "--yes", "--download-only"}, whole()...),
		append([]string{"download"}, some...),
	} {
		if _, err := output(ctx, archives, env, append([]string{"apt-get", "--quiet=2"}, args...)...); err != nil {
			return nil, err
		}
	}
	files, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return nil, err
	}
	var all []pkg
	for _, file := range files {
		p := pkg{file: file}
		fields, err := output(ctx, dir, env, "dpkg-deb", "--show", "--showformat=${Package}\n${Version}", file)
		if err != nil {
			return nil, err
		}
		p.name, p.version, _ = strings.Cut(string(fields), "\n")
		if p.control, err = output(ctx, dir, env, "dpkg-deb", "--field", file); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b pkg) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// checkHost fails if this machine cannot fetch packages of Debian.
func checkHost() error {
	for _, program := range []string{"apt-get", "apt-config", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("this machine has no %s: build the image on Debian or Ubuntu, or in a container of one", program)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("read the keys of Debian: %w: install the package debian-archive-keyring", err)
	}
	return nil
}

// configure makes apt's directories and settings, and returns the environment with which it uses them (apt.conf(5):
// APT_CONFIG). The machine's own settings give only the proxies.
func (d debian) configure(ctx context.Context, architecture, dir string) (env []string, err error) {
	env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C"}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	proxies, err := output(ctx, "/", env, "apt-config", "dump", "--format=%F \"%v\";%n", "Acquire::http::Proxy", "Acquire::https::Proxy")
	if err != nil {
		return nil, err
	}
	sources := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s %s-updates\nComponents: main\nSigned-By: %s\n\nTypes: deb\nURIs: %s\nSuites: %s-security\nComponents: main\nSigned-By: %s\n",
		d.mirror, d.suite, d.suite, keyring, d.security, d.suite, keyring)
	settings := fmt.Sprintf(`%sDir "%s/";
Dir::State "%s/state";
Dir::State::status "%s/status";
Dir::Cache "%s/cache";
Dir::Etc::sourcelist "%s/debian.sources";
Dir::Etc::sourceparts "-";
APT::Architecture "%s";
APT::Architectures { "%s"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
`, proxies, dir, dir, dir, dir, dir, architecture, architecture)
	for _, of := range []string{"state/lists/partial", "cache/archives/partial", "etc/apt/apt.conf.d", "etc/apt/preferences.d"} {
		if err := os.MkdirAll(filepath.Join(dir, of), 0o755); err != nil {
			return nil, err
		}
	}
	for name, content := range map[string]string{"debian.sources": sources, "apt.conf": settings, "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	return append(env, "APT_CONFIG="+filepath.Join(dir, "apt.conf")), nil
}

// output runs a program and returns its output.
func output(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	c := command.Command{Args: args, Env: env, Dir: dir, Stdout: &out}
	if err := c.Run(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args[:min(len(args), 4)], " "), err)
	}
	return out.Bytes(), nil
}
