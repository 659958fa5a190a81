package disktrial

import (
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// tellingOptions are names of options, with any value or none (nfs(5), mount.lustre(8)).
func tellingOptions() []string {
	return []string{
		"vers", "sec", "soft", "softerr", "noac", "nolock", "local_lock", "acregmin", "acregmax", "acdirmin", "acdirmax", "actimeo",
		"lookupcache", "flock", "localflock", "noflock", "noatime", "ro", "noexec",
	}
}

// telling returns the options of a mount about its freshness and strictness.
func telling(m procstat.Mount) []string {
	var told []string
	for _, option := range slices.Concat(m.Options, m.FileSystemOptions) {
		name, _, _ := strings.Cut(option, "=")
		if slices.Contains(tellingOptions(), name) && option != "local_lock=none" && !slices.Contains(told, option) {
			told = append(told, option)
		}
	}
	return told
}

// Option returns the value of an option of the mount, and whether it is set. An option without a value has the
// value "".
func (f Features) Option(name string) (value string, set bool) {
	for _, option := range f.Options {
		if is, value, _ := strings.Cut(option, "="); is == name {
			return value, true
		}
	}
	return "", false
}

// Kerberos reports whether the disk lets in by tickets: AFS, and NFS with sec=krb5, krb5i or krb5p.
func (f Features) Kerberos() bool {
	sec, _ := f.Option("sec")
	return f.Type == "afs" || strings.HasPrefix(sec, "krb5")
}
