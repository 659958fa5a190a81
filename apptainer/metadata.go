package apptainer

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
)

// Files that Apptainer sources in a root file system at run time (action_script.sh in its
// internal/pkg/util/fs/files; for its own files, makeFiles in
// internal/pkg/build/sources/base_environment.go).
const (
	baseEnvironment = `#!/bin/sh
export PATH="${PATH:-` + sifconfig.DefaultPath + `}"
`
	// Apptainer's --nv binds the libraries of the GPU driver there.
	lastEnvironment = `#!/bin/sh
if [ -z "$LD_LIBRARY_PATH" ]; then
    LD_LIBRARY_PATH="/.singularity.d/libs"
else
    LD_LIBRARY_PATH="$LD_LIBRARY_PATH:/.singularity.d/libs"
fi
export LD_LIBRARY_PATH
`
)

// Files of every SIF.
const (
	baseEnvironmentFile  = ".singularity.d/env/01-base.sh"
	imageEnvironmentFile = ".singularity.d/env/10-docker2singularity.sh"
	buildEnvironmentFile = ".singularity.d/env/90-environment.sh"
	lastEnvironmentFile  = ".singularity.d/env/99-base.sh"
	labelsFile           = ".singularity.d/labels.json"
	runScriptFile        = ".singularity.d/runscript"
)

func metadataFiles() []string {
	return []string{baseEnvironmentFile, imageEnvironmentFile, buildEnvironmentFile, lastEnvironmentFile, labelsFile, runScriptFile}
}

// metadataEntry is a file, or a directory if its name ends with a slash.
type metadataEntry struct {
	name    string
	mode    int64
	content string
}

func mountPoints() []metadataEntry {
	return []metadataEntry{
		{"dev/", 0o755, ""},
		{"proc/", 0o555, ""},
		{"sys/", 0o555, ""},
		{"etc/", 0o755, ""},
		{"root/", 0o700, ""},
		{"home/", 0o755, ""},
		{"tmp/", 0o1777, ""},
		{"var/tmp/", 0o1777, ""},
		{"etc/hosts", 0o644, ""},
		{"etc/resolv.conf", 0o644, ""},
	}
}

// metadataLayer returns, as a tar stream, the layer that turns a Docker image's tree into a SIF's:
// Apptainer's files, and the missing mount points of container runtimes. It replaces files of the
// image with the same names.
func metadataLayer(exists func(name string) (bool, error), config v1.Config) ([]byte, error) {
	labels := config.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	labelsJSON, err := json.MarshalIndent(labels, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("write the labels: %w", err)
	}
	entries := []metadataEntry{
		{".singularity.d/", 0o755, ""},
		{".singularity.d/env/", 0o755, ""},
		{".singularity.d/libs/", 0o755, ""},
		{baseEnvironmentFile, 0o755, baseEnvironment},
		{imageEnvironmentFile, 0o755, environmentScript(config.Env)},
		{buildEnvironmentFile, 0o755, "#!/bin/sh\n"},
		{lastEnvironmentFile, 0o755, lastEnvironment},
		{labelsFile, 0o644, string(labelsJSON)},
		{runScriptFile, 0o755, runScript(config)},
	}
	for _, mountPoint := range mountPoints() {
		name := strings.TrimSuffix(mountPoint.name, "/")
		there, err := exists(name)
		if err != nil {
			return nil, fmt.Errorf("look for /%s: %w", name, err)
		}
		if !there {
			entries = append(entries, mountPoint)
		}
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.content))}
		if strings.HasSuffix(e.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		err := w.WriteHeader(header)
		if err == nil {
			_, err = io.WriteString(w, e.content)
		}
		if err != nil {
			return nil, fmt.Errorf("write Apptainer's files: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write Apptainer's files: %w", err)
	}
	return buf.Bytes(), nil
}

// environmentScript returns a script that sets an image's environment as Apptainer does: PATH
// always, and other variables unless the caller has set them (conveyorPacker_oci.go: insertEnv). It
// omits variables whose names a shell does not accept.
func environmentScript(env []string) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	for _, assignment := range env {
		name, value, ok := strings.Cut(assignment, "=")
		if !ok || !isShellName(name) {
			continue
		}
		if name != "PATH" {
			fmt.Fprintf(&b, "[ -n \"${%s:-}\" ] || ", name)
		}
		fmt.Fprintf(&b, "%s=%s\nexport %s\n", name, shellQuote(value), name)
	}
	return b.String()
}

// runScript returns a script that runs the image's entrypoint and command as Docker does: arguments
// replace the command.
func runScript(config v1.Config) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	if len(config.Cmd) > 0 {
		fmt.Fprintf(&b, "[ $# -gt 0 ] || set --%s\n", shellWords(config.Cmd))
	}
	if len(config.Entrypoint)+len(config.Cmd) == 0 {
		b.WriteString("[ $# -gt 0 ] || set -- /bin/sh\n")
	}
	fmt.Fprintf(&b, "exec%s \"$@\"\n", shellWords(config.Entrypoint))
	return b.String()
}

func isShellName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

func shellWords(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(" " + shellQuote(w))
	}
	return b.String()
}

// shellQuote quotes any text as one word. The shell library of Apptainer and SingularityCE keeps
// the backslash of an escaped apostrophe (mvdan.cc/sh v3.13), so it puts an apostrophe in double
// quotes instead.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'" }
