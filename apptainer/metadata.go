package apptainer

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
)

// What Apptainer looks for in a root file system at run time: see
// action_script.sh in its internal/pkg/util/fs/files, and makeFiles in
// internal/pkg/build/sources/base_environment.go for what it makes itself.
const (
	baseEnvironment = `#!/bin/sh
export PATH="${PATH:-` + sifconfig.DefaultPath + `}"
`
	// The library path is where Apptainer's --nv binds the driver's libraries.
	lastEnvironment = `#!/bin/sh
if [ -z "$LD_LIBRARY_PATH" ]; then
    LD_LIBRARY_PATH="/.singularity.d/libs"
else
    LD_LIBRARY_PATH="$LD_LIBRARY_PATH:/.singularity.d/libs"
fi
export LD_LIBRARY_PATH
`
)

// The files that every SIF has.
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

// metadataLayer makes, as a tar stream, the layer that turns a Docker image's
// tree into a SIF's: Apptainer's files, and the mount points that are missing.
func metadataLayer(exists func(name string) (bool, error), config *v1.ConfigFile) ([]byte, error) {
	labels := config.Config.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	labelsJSON, err := json.MarshalIndent(labels, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("write the labels: %w", err)
	}
	w := layerWriter{}
	w.dir(".singularity.d", 0o755)
	w.dir(".singularity.d/env", 0o755)
	w.dir(".singularity.d/libs", 0o755)
	w.file(baseEnvironmentFile, baseEnvironment, 0o755)
	w.file(imageEnvironmentFile, environmentScript(config.Config.Env), 0o755)
	w.file(buildEnvironmentFile, "#!/bin/sh\n", 0o755)
	w.file(lastEnvironmentFile, lastEnvironment, 0o755)
	w.file(labelsFile, string(labelsJSON), 0o644)
	w.file(runScriptFile, runScript(config.Config), 0o755)
	if err := w.mountPoints(exists); err != nil {
		return nil, err
	}
	return w.end()
}

// layerWriter makes a layer in memory. Names that an image uses itself are
// replaced.
type layerWriter struct {
	buf bytes.Buffer
	tw  *tar.Writer
	err error
}

func (w *layerWriter) header(hdr *tar.Header) {
	if w.tw == nil {
		w.tw = tar.NewWriter(&w.buf)
	}
	if w.err == nil {
		w.err = w.tw.WriteHeader(hdr)
	}
}

func (w *layerWriter) dir(name string, mode int64) {
	w.header(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
}

func (w *layerWriter) file(name, content string, mode int64) {
	w.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))})
	if w.err == nil {
		_, w.err = w.tw.Write([]byte(content))
	}
}

// mountPoints makes what container runtimes mount over, where the tree lacks
// it.
func (w *layerWriter) mountPoints(exists func(name string) (bool, error)) error {
	for _, dir := range []struct {
		name string
		mode int64
	}{{"dev", 0o755}, {"proc", 0o555}, {"sys", 0o555}, {"etc", 0o755}, {"root", 0o700}, {"home", 0o755}, {"tmp", 0o1777}, {"var/tmp", 0o1777}} {
		if there, err := exists(dir.name); err != nil || there {
			if err != nil {
				return fmt.Errorf("look for /%s: %w", dir.name, err)
			}
			continue
		}
		w.dir(dir.name, dir.mode)
	}
	for _, name := range []string{"etc/hosts", "etc/resolv.conf"} {
		if there, err := exists(name); err != nil || there {
			if err != nil {
				return fmt.Errorf("look for /%s: %w", name, err)
			}
			continue
		}
		w.file(name, "", 0o644)
	}
	return nil
}

func (w *layerWriter) end() ([]byte, error) {
	if w.err == nil {
		w.err = w.tw.Close()
	}
	if w.err != nil {
		return nil, fmt.Errorf("write Apptainer's files: %w", w.err)
	}
	return w.buf.Bytes(), nil
}

// environmentScript sets an image's environment as Apptainer does: PATH always,
// and the rest where the caller has not (conveyorPacker_oci.go:
// insertEnv). Names that a shell cannot hold are left out.
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

// runScript runs the image's entrypoint and command, the latter replaced by
// arguments, as Docker does.
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

// shellQuote makes one word of any text, also for the shell that Apptainer and
// SingularityCE read scripts with, which keeps the backslash of an escaped
// apostrophe (mvdan.cc/sh v3.13).
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'" }
