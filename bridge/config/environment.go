package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/spool"
)

// environment returns the variables of the queue's commands, sorted.
func (q Queue) environment() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(q.Environment)) {
		all = append(all, name+"="+q.Environment[name])
	}
	return all
}

// checkEnvironment refuses variables that would break a run, by the rule for the names of secrets.
func (q Queue) checkEnvironment() error {
	for _, name := range slices.Sorted(maps.Keys(q.Environment)) {
		switch value := q.Environment[name]; {
		case !codalab.IsVariable(name):
			return fmt.Errorf("environment: %q is no name of a variable: want letters, digits and '_', no digit first", name)
		case codalab.IsReservedVariable(name), strings.HasPrefix(name, "CODALAB_"):
			return fmt.Errorf("environment: %s has a meaning of its own for a run, and so no queue may set it", name)
		case strings.ContainsRune(value, 0):
			return fmt.Errorf("environment: the value of %s has a zero character", name)
		case len(value) > codalab.MaxSecretBytes:
			return fmt.Errorf("environment: the value of %s has %d bytes: want %d at most", name, len(value), codalab.MaxSecretBytes)
		}
	}
	return nil
}

// binds returns the directories of the nodes in the queue's containers. [Queue.check] has accepted them.
func (q Queue) binds() []spool.Bind {
	var all []spool.Bind
	for _, text := range q.Binds {
		all = append(all, bindOf(text))
	}
	return all
}

func bindOf(text string) spool.Bind {
	source, target, ok := strings.Cut(text, ":")
	if !ok {
		target = source
	}
	return spool.Bind{Source: filepath.Clean(source), Target: filepath.Clean(target)}
}

// checkBinds refuses directories that bundles must not see, and places in the container that every container needs.
func (c Config) checkBinds() error {
	var errs []error
	for _, name := range c.QueueNames() {
		var targets []string
		for _, text := range c.Queue[name].Binds {
			err := c.checkBind(text)
			target := bindOf(text).Target
			if i := slices.IndexFunc(targets, func(other string) bool { return subpath.Within(target, other) || subpath.Within(other, target) }); err == nil && i >= 0 {
				err = fmt.Errorf("%q would hide %s of another one, or lie inside it", text, targets[i])
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("[queue.%s]: binds: %w", name, err))
			}
			targets = append(targets, target)
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkBind(text string) error {
	b := bindOf(text)
	switch {
	case strings.Count(text, ":") > 1 || strings.ContainsRune(text, 0) || !filepath.IsAbs(b.Source) || !filepath.IsAbs(b.Target):
		return fmt.Errorf("%q: want the absolute path of a directory on the nodes, such as \"/data/hf\", or \"/data/hf:/hf\" for another path in the container; they are always read-only", text)
	case b.Source == "/":
		return fmt.Errorf("%q: list the directories that hold data, not the whole machine", text)
	case hidesContainer(b.Target):
		return fmt.Errorf("%q: %s would hide what every container has there: choose another path in the container", text, b.Target)
	}
	for _, dir := range SystemDirs() {
		if subpath.Within(b.Source, dir) {
			return fmt.Errorf("%q: there is no data in %s", text, dir)
		}
	}
	for key, own := range c.ownPaths() {
		if own != "" && (subpath.Within(own, b.Source) || subpath.Within(b.Source, own)) {
			return fmt.Errorf("%q: %s (%s) would be visible to bundles: name a directory that does not hold it", text, own, key)
		}
	}
	return nil
}

// ownPaths returns the paths of the bridge that no bundle may see, by their keys.
func (c Config) ownPaths() map[string]string {
	paths := map[string]string{
		"shared": c.Shared, "server_store": c.ServerStore, "password_file": c.PasswordFile, "token_file": c.TokenFile,
		"cache.dir": c.Cache.Dir, "image.logins": c.Image.Logins, "image.docker_config": c.Image.DockerConfig,
	}
	if !sqldb.IsURL(c.Ledger) {
		paths["ledger"] = c.Ledger
	}
	return paths
}

// bundleDir matches a path of a container below which bundles have their directories.
var bundleDir = regexp.MustCompile(`^/0x[0-9a-f]{32}`)

// hidesContainer reports whether something at a path of a container would hide a directory that each one needs.
func hidesContainer(target string) bool {
	for _, dir := range SystemDirs() {
		if subpath.Within(target, dir) {
			return true
		}
	}
	needed := []string{"/", "/bin", "/etc", "/lib", "/lib64", "/sbin", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/var"}
	return slices.Contains(needed, target) || bundleDir.MatchString(target)
}
