package purgers

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Rule removes files below a directory when they have reached an age.
type Rule struct {
	// By is the program that has the rule, such as systemd-tmpfiles, and Source the file with the rule.
	By     string `json:"by"`
	Source string `json:"source"`
	// Dir is the directory, which may be a pattern of glob(7).
	Dir string `json:"dir"`
	// Age is 0 if it could not be read.
	Age time.Duration `json:"age,omitempty"`
}

// String describes the rule: "systemd-tmpfiles removes what is older than 10d below /tmp (/usr/lib/tmpfiles.d/tmp.conf)".
func (r Rule) String() string {
	age := "than a time that is not known"
	if r.Age > 0 {
		age = "than " + spell(r.Age)
	}
	return fmt.Sprintf("%s removes what is older %s below %s (%s)", r.By, age, r.Dir, r.Source)
}

// spell prints an age in the largest unit that is whole.
func spell(age time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case age%day == 0:
		return fmt.Sprintf("%dd", age/day)
	case age%time.Hour == 0:
		return fmt.Sprintf("%dh", age/time.Hour)
	}
	return age.String()
}

// Find returns the rules of the host in root that remove files below a path, those with the least age first. An empty
// root means "/". The path and the directories of rules may lead over symbolic links. Rules that cannot be read are left
// out.
func Find(root, target string) []Rule {
	h := host{cmp.Or(root, "/")}
	target = h.resolve(filepath.Clean(target))
	var rules []Rule
	for _, r := range slices.Concat(h.tmpfiles(target), h.tmpreaper(), h.cron(target)) {
		if h.covers(r.Dir, target) && h.oneDisk(r.Dir, target, r.By) && !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	slices.SortStableFunc(rules, func(a, b Rule) int { return cmp.Compare(a.Age, b.Age) })
	return rules
}

// Suspicious returns the part of a path by which many sites name disks that they purge, or "".
func Suspicious(target string) string {
	for part := range strings.SplitSeq(filepath.Clean(target), "/") {
		if lower := strings.ToLower(part); strings.Contains(lower, "scratch") || strings.Contains(lower, "purge") {
			return part
		}
	}
	return ""
}

// host is the host whose files are in root.
type host struct{ root string }

func (h host) at(name string) string { return filepath.Join(h.root, name) }

// files lists the files that match patterns, by their names on the host.
func (h host) files(patterns ...string) []string {
	var names []string
	for _, pattern := range patterns {
		found, _ := filepath.Glob(h.at(pattern)) // its one error is a wrong pattern
		for _, name := range found {
			if relative, err := filepath.Rel(h.root, name); err == nil {
				names = append(names, "/"+relative)
			}
		}
	}
	return names
}

// lines returns the lines of a file without comments. A line that ends with a backslash goes on.
func (h host) lines(name string) []string {
	text, err := os.ReadFile(h.at(name))
	if err != nil || len(text) > maxText {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// maxText is larger than any file of rules.
const maxText = 1 << 20

// covers reports whether a directory, or a pattern of one, is a path without symbolic links or one above it. The directory
// may be such a link, because rules often end in a slash or a dot, and programs then begin at its target.
func (h host) covers(dir, target string) bool { return covers(h.resolve(dir), target) }

// resolve returns a path of the host without symbolic links. A part that the host does not have, or an endless loop of
// links, stays as it is.
func (h host) resolve(name string) string {
	const most = 40 // as in Linux: path_resolution(7)
	at, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		link, err := os.Readlink(h.at(filepath.Join(at, part)))
		switch {
		case err != nil:
			at = filepath.Join(at, part)
			continue
		case links == most:
			return name
		case filepath.IsAbs(link):
			at = "/"
		}
		links++
		rest = append(strings.Split(link, "/"), rest...)
	}
	return at
}

// covers reports whether a directory, or a pattern of one, is a path or one above it.
func covers(dir, target string) bool {
	depth := strings.Count(strings.TrimRight(dir, "/"), "/")
	parts := strings.Split(target, "/")
	if depth >= len(parts) {
		return false
	}
	above := cmp.Or(strings.Join(parts[:depth+1], "/"), "/")
	ok, err := path.Match(path.Clean(dir), above)
	return err == nil && ok
}

// oneDisk reports whether a program gets from a directory to a path. systemd-tmpfiles, tmpwatch and tmpreaper stay on
// the file system on which they begin. A pattern counts as one directory above the path.
func (h host) oneDisk(dir, target, by string) bool {
	if by == "find" || strings.ContainsAny(dir, "*?[") {
		return true
	}
	from, errFrom := deviceOf(h.at(h.resolve(dir)))
	to, errTo := deviceOf(h.at(nearest(h, target)))
	return errFrom != nil || errTo != nil || from == to
}

// nearest returns a path, or the nearest one above it that the host has.
func nearest(h host, target string) string {
	for ; target != "/"; target = filepath.Dir(target) {
		if _, err := os.Stat(h.at(target)); err == nil {
			return target
		}
	}
	return target
}
