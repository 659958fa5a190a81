package container_test

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// neighbour is a program that is two bundles on one node, or another program of their account.
var neighbour = testenv.Program{Package: "./testdata/neighbour"}

// way returns the way of a runtime in package walls.
func (w testRuntime) way() walls.Way {
	switch {
	case w.Apptainer != nil && w.Apptainer.Plain:
		return walls.Setuid
	case w.Apptainer != nil:
		return walls.Apptainer
	case w.Engine != nil && filepath.Base(w.Engine.Program) == "podman":
		return walls.Podman
	case w.Engine != nil:
		return walls.Docker
	case w.Pods != nil:
		return walls.Kubernetes
	}
	return walls.Builtin
}

// TestWallsHold attacks the walls with each runtime: one bundle tries to reach the things of another bundle, of
// a program of the same account outside of containers, and of the machine. It compares with package walls, in
// both directions: a wall that the package calls weaker has to be so.
func TestWallsHold(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		token, port := newHexToken(), freePort(t)
		holdOnHost(t, token, port)
		held := w.shellImage(t)
		held.KillGrace = testenv.WaitLimit
		held.Binds = []container.Bind{{Source: neighbour.Path(t), Target: "/neighbour", ReadOnly: true}}
		held.ShellCommand = fmt.Sprintf("mkdir -p /tmp; exec /neighbour hold %s %s", token, port)
		victim := w.start(t, held)
		victim.awaitBegun()

		secret := filepath.Join(userDir(t), "secret")
		must(t, os.WriteFile(secret, []byte("precious"), 0o644))
		private := victim.req.Container.PrivateDir
		tried := w.shellImage(t)
		tried.Binds = append(held.Binds, container.Bind{Source: userDir(t), Target: "/work"})
		tried.ShellCommand = fmt.Sprintf("mkdir -p /tmp; exec /neighbour try %d %s %s %s %s", disk(t), port, hex.EncodeToString([]byte(token)), secret, private+"/secret")
		must(t, os.WriteFile(private+"/secret", []byte("precious"), 0o644))
		answers := answersByWall(t, w.shell(t, tried))

		must(t, victim.cmd.Process.Signal(syscall.SIGTERM))
		if answer := victim.wait(); answer.Error != "" || answer.Exit.Code != 0 {
			t.Errorf("the other bundle: %+v, output %q", answer, victim.output())
		}
		compareWalls(t, w.way(), w.host(t), answers)
	})
}

// host returns this machine with the features of an engine, as it tells them to the ordinary user.
func (w testRuntime) host(t *testing.T) (h container.Host) {
	t.Helper()
	if w.Engine == nil {
		return h
	}
	features, err := w.Engine.Features(w.call(t, "info", "--format", "{{json .}}"))
	must(t, err)
	h.Docker.Engine, h.Podman.Engine = &features, &features
	return h
}

// compareWalls compares the answers of an attack with package walls.
func compareWalls(t *testing.T, way walls.Way, h container.Host, answers map[string]string) {
	t.Helper()
	for _, wall := range walls.All() {
		if len(wall.Tests) > 0 {
			continue
		}
		how, tried := answers[wall.Name]
		delete(answers, wall.Name)
		clause := wall.WeakerOn(h, way)
		switch {
		case !tried:
			t.Errorf("%s: nothing attacks this wall", wall.Name)
		case how != "held" && clause == "":
			t.Errorf("%s: the command %s", wall.Name, how)
		case how == "held" && clause != "":
			t.Errorf("%s held, and package walls says that the command %s", wall.Name, clause)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		t.Errorf("%s: package walls does not have this wall", name)
	}
}

func answersByWall(t *testing.T, output string) map[string]string {
	t.Helper()
	answers := map[string]string{}
	for line := range strings.Lines(output) {
		name, how, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Errorf("not an answer: %q", line)
		}
		answers[name] = how
	}
	return answers
}

// newHexToken returns a name for the things of one test.
func newHexToken() string {
	var bytes [8]byte
	_, _ = rand.Read(bytes[:])
	return hex.EncodeToString(bytes[:])
}

// freePort returns a port of localhost that nothing uses.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	return port
}

// disk returns the number of the disk with this machine's root, or of another device with blocks.
func disk(t *testing.T) uint64 {
	t.Helper()
	devices, err := filepath.Glob("/sys/class/block/*/dev")
	must(t, err)
	for _, name := range devices {
		text, err := os.ReadFile(name)
		must(t, err)
		major, minor, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
		a, err := strconv.ParseUint(major, 10, 32)
		must(t, err)
		b, err := strconv.ParseUint(minor, 10, 32)
		must(t, err)
		if a != 7 { // a loop device without a file cannot be read anyway
			return a<<8 | b
		}
	}
	t.Skip("this machine has no disk to attack")
	return 0
}

// holdOnHost makes the ordinary user hold the same things outside of containers, until the test's end.
func holdOnHost(t *testing.T, token, port string) {
	t.Helper()
	cmd := exec.Command(neighbour.Path(t), "hold", token, port)
	cmd.Env, cmd.Dir = []string{"HOLD=stdin"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinaryUser(t)}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program outside: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "begun\n" {
		t.Fatalf("the program outside: %q, %v", line, err)
	}
}
