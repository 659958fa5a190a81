package container_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestChoiceGoesByWhatIsAskedForAndWhatTheHostHas(t *testing.T) {
	t.Parallel()
	lack := func(what string) container.Finding { return container.Finding{Lack: "this node lacks " + what} }
	whole := container.Host{Apptainer: container.Finding{Path: "/a"}, Singularity: container.Finding{Path: "/s"}, Docker: container.Finding{Path: "/d"}, Podman: container.Finding{Path: "/p"}}
	with := func(change func(h *container.Host)) container.Host {
		h := whole
		change(&h)
		return h
	}
	setuid := container.Finding{Path: "/a", Setuid: true}
	ce := container.Finding{Path: filepath.Join(t.TempDir(), "singularity")}
	must(t, os.WriteFile(ce.Path, nil, 0o600))
	ceSetuid := ce
	ceSetuid.Setuid = true
	for name, tt := range map[string]struct {
		want   runtimes.Name
		host   container.Host
		chosen runtimes.Name
		plain  bool
		says   string // in the reason or, without a runtime, in the error
	}{
		"nothing asked":       {"", whole, runtimes.Builtin, false, "this node has all that it needs"},
		"auto":                {runtimes.Auto, whole, runtimes.Builtin, false, "this node has all that it needs"},
		"builtin":             {runtimes.Builtin, whole, runtimes.Builtin, false, "builtin was asked for"},
		"apptainer":           {runtimes.Apptainer, whole, runtimes.Apptainer, false, "apptainer was asked for"},
		"singularity":         {runtimes.Singularity, whole, runtimes.Singularity, false, "singularity was asked for"},
		"docker":              {runtimes.Docker, whole, runtimes.Docker, false, "docker was asked for"},
		"podman":              {runtimes.Podman, whole, runtimes.Podman, false, "podman was asked for"},
		"unknown":             {"shifter", whole, "", false, `"shifter" is not a runtime: there are [auto builtin`},
		"no bubblewrap":       {"", with(func(h *container.Host) { h.Bubblewrap = lack("bwrap") }), runtimes.Apptainer, false, "the built-in runtime cannot be used: this node lacks bwrap"},
		"no apptainer either": {"", with(func(h *container.Host) { h.Bubblewrap, h.Apptainer = lack("bwrap"), lack("a") }), runtimes.Singularity, false, "lacks bwrap"},
		"nothing but engines": {"", with(func(h *container.Host) {
			h.Bubblewrap, h.Apptainer, h.Singularity = lack("bwrap"), lack("a"), lack("s")
		}), "", false, "this node can run no container: this node lacks bwrap; or an Apptainer with privileges"},
		"no fuse":                          {"", with(func(h *container.Host) { h.Fuse = lack("fuse") }), runtimes.Builtin, false, "the image can be unpacked: this node lacks fuse"},
		"no fuse, setuid":                  {"", with(func(h *container.Host) { h.Fuse, h.Apptainer = lack("fuse"), setuid }), runtimes.Apptainer, true, "lacks fuse"},
		"no fuse, no unsquashfs":           {"", with(func(h *container.Host) { h.Fuse, h.Unsquashfs = lack("fuse"), lack("u") }), "", false, "this node can run no container: this node lacks fuse"},
		"no overlay":                       {"", with(func(h *container.Host) { h.Overlay = lack("overlay") }), runtimes.Apptainer, false, "lacks overlay"},
		"no namespaces":                    {"", with(func(h *container.Host) { h.Namespaces = lack("namespaces") }), "", false, "this node lacks namespaces"},
		"no namespaces, setuid":            {"", with(func(h *container.Host) { h.Namespaces, h.Apptainer = lack("namespaces"), setuid }), runtimes.Apptainer, true, "lacks namespaces"},
		"builtin, none":                    {runtimes.Builtin, with(func(h *container.Host) { h.Namespaces = lack("namespaces") }), "", false, "builtin was asked for: this node lacks namespaces"},
		"builtin unpacked":                 {runtimes.Builtin, with(func(h *container.Host) { h.Fuse = lack("fuse") }), runtimes.Builtin, false, "builtin was asked for"},
		"apptainer, none":                  {runtimes.Apptainer, with(func(h *container.Host) { h.Apptainer = lack("a") }), "", false, "apptainer was asked for: this node lacks a"},
		"apptainer, no namespaces":         {runtimes.Apptainer, with(func(h *container.Host) { h.Namespaces = lack("namespaces") }), "", false, "lacks namespaces"},
		"singularity, no squashfuse":       {runtimes.Singularity, with(func(h *container.Host) { h.Singularity, h.Squashfuse = ce, lack("sq") }), "", false, "singularity was asked for: this node lacks sq"},
		"singularity, suid, no squashfuse": {runtimes.Singularity, with(func(h *container.Host) { h.Singularity, h.Squashfuse = ceSetuid, lack("sq") }), runtimes.Singularity, true, "singularity was asked for"},
		"apptainer, no squashfuse":         {runtimes.Apptainer, with(func(h *container.Host) { h.Squashfuse = lack("sq") }), runtimes.Apptainer, false, "apptainer was asked for"},
		"docker, none":                     {runtimes.Docker, with(func(h *container.Host) { h.Docker = lack("d") }), "", false, "docker was asked for: this node lacks d"},
		"podman, no namespaces":            {runtimes.Podman, with(func(h *container.Host) { h.Namespaces = lack("namespaces") }), runtimes.Podman, false, "podman was asked for"},
	} {
		choice, err := container.Choose(tt.want, tt.host)
		reason := choice.Reason
		if err != nil {
			reason = err.Error()
		}
		if choice.Runtime != tt.chosen || choice.Plain != tt.plain || (err != nil) != (tt.chosen == "") || !strings.Contains(reason, tt.says) || strings.Contains(reason, "\n") {
			t.Errorf("%s: %+v, %v; want %q with %q", name, choice, err, tt.chosen, tt.says)
		}
	}
}

// autoRuntime leaves the choice to the host, which finds Apptainer in its PATH.
func autoRuntime(t *testing.T) (w testRuntime, preparation string) {
	t.Helper()
	program := apptainerRuntime(t).Apptainer.Program
	if suid, err := filepath.Glob(filepath.Join(filepath.Dir(program), "../libexec/*/bin/starter-suid")); err != nil || len(suid) > 0 {
		t.Skip("needs an Apptainer that is not installed setuid: the hosts of this test cannot stop one that is")
	}
	return testRuntime{Runner: &runner.Runner{Helper: enter.Path(t)}}, "ln -s " + program + " /opt/apptainer; export PATH=/opt:$PATH; "
}

func TestRefusedRuntimeIsReplacedByAnother(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	w, prepare := autoRuntime(t)
	prepare = "mount -t tmpfs none /opt; " + prepare
	for name, tt := range map[string]struct {
		preparation string
		chosen      runtimes.Name
		says        string
	}{
		"all there":      {"true", runtimes.Builtin, "has all that it needs"},
		"no bubblewrap":  {"mount --bind /dev/null $(command -v bwrap)", runtimes.Apptainer, "the built-in runtime cannot be used: this node lacks the program bwrap"},
		"no fuse":        {withoutFuse, runtimes.Builtin, "the image can be unpacked: this node has no /dev/fuse"},
		"no namespaces":  {"echo 0 >/proc/sys/user/max_user_namespaces", "", "this node can run no container: this node does not let ordinary users make user namespaces"},
		"hidden trouble": {"mount --bind /bin/false $(command -v bwrap)", runtimes.Apptainer, "the built-in runtime cannot be used: bubblewrap could not set the container up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := w.startOnHost(t, prepare+tt.preparation, container.Container{SIF: image, ShellCommand: "echo ran; exit 7"})
			answer := r.wait()
			reason := answer.Choice.Reason
			if tt.chosen == "" {
				reason = answer.Error
			}
			if answer.Choice.Runtime != tt.chosen || !strings.Contains(reason, tt.says) {
				t.Errorf("%+v, want %q with %q", answer, tt.chosen, tt.says)
			}
			if tt.chosen != "" && (answer.Exit.Code != 7 || r.output() != "ran\n") {
				t.Errorf("%+v with output %q", answer, r.output())
			}
		})
	}
}

// probe makes the ordinary user probe a host that a preparation has changed.
func probe(t *testing.T, scratch, preparation string) (host container.Host) {
	t.Helper()
	exe, err := os.Open("/proc/self/exe")
	must(t, err)
	defer func() { _ = exe.Close() }()
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", preparation+"; exec "+self+" "+probeAsUser+" "+scratch+" "+enter.Path(t))
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin"}, "/"
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinaryUser(t)}
	output, err := cmd.Output()
	must(t, err)
	must(t, json.Unmarshal(output, &host))
	return host
}

func TestProbeFindsWhatIsThereAndLeavesNothing(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	scratch := userDir(t)
	host := probe(t, scratch, "true")
	for name, f := range map[string]container.Finding{
		"namespaces": host.Namespaces, "fuse": host.Fuse, "overlay": host.Overlay, "squashfuse": host.Squashfuse, "bubblewrap": host.Bubblewrap,
	} {
		if f.Lack != "" {
			t.Errorf("%s: %s", name, f.Lack)
		}
	}
	if os.Getenv("CLTEST_APPTAINER") == "" && (host.Apptainer.Lack == "") != (host.Apptainer.Version != "") {
		t.Errorf("%+v", host.Apptainer)
	}
	if host.Podman.Version != "" {
		t.Error("Podman was started, which leaves a process and a store")
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	host = probe(t, scratch, "echo 0 >/proc/sys/user/max_user_namespaces; mount --bind /dev/null $(command -v bwrap); mount -t tmpfs none /dev")
	if host.Namespaces.Lack == "" || host.Fuse.Lack == "" || host.Bubblewrap.Lack == "" {
		t.Errorf("%+v", host)
	}
	// No setting shows this: mounts over /proc keep a namespace from mounting its own.
	host = probe(t, scratch, "mount -t tmpfs none /proc/sys/user")
	if !strings.Contains(host.Namespaces.Lack, "this node does not let user namespaces mount /proc") {
		t.Errorf("%+v", host)
	}
}

// SingularityCE, up to 4.5 at least, and Apptainer before 1.4 do not support zstd.
func TestCompressionThatApptainerDoesNotKnowIsNamed(t *testing.T) {
	t.Parallel()
	w := plainRuntime(t)
	answer := w.start(t, container.Container{SIF: shellImage(t), ShellCommand: "exit 7"}).wait()
	switch {
	case w.compression == "" && answer.Exit.Code != 7:
		t.Errorf("%+v", answer)
	case w.compression != "" && !strings.HasSuffix(answer.Error, "the site has to set image.compression to gzip"):
		t.Errorf("%+v", answer)
	}
}
