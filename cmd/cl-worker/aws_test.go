package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// TestLaunchTemplateOfThePageLetsWorkersRunContainers asks cl-worker in containers of Docker: in one as ECS makes it, in one
// without a filter of system calls, and in one of the runtime that docs/aws-batch.md gives to instances.
func TestLaunchTemplateOfThePageLetsWorkersRunContainers(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	if _, err := exec.LookPath("python3"); err != nil || os.Getenv("CLTEST_DOCKER_HOST") != "" {
		t.Skip("needs python3, and an engine of its own")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "aws-batch.md"))
	must(t, err)
	script := regexp.MustCompile(`(?s)runc-codalab <<'END'\n(.*?\n)END\n`).FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/aws-batch.md has no runtime")
	}
	runtime := filepath.Join(t.TempDir(), "runc-codalab")
	testenv.WriteProgram(t, runtime, script[1])
	engine := testenv.Docker{Settings: fmt.Sprintf(`{"runtimes": {"codalab": {"path": %q}}}`, runtime)}
	host, client := engine.Host(t)
	t.Cleanup(func() { must(t, engine.Remove()) })
	docker := func(input []byte, args ...string) string {
		cmd := exec.Command(client, args...)
		cmd.Env, cmd.Stdin = append(os.Environ(), "DOCKER_HOST="+host), bytes.NewReader(input)
		said, _ := cmd.CombinedOutput() // a probe that finds no way fails
		return string(said)
	}
	var layer bytes.Buffer
	must(t, writeLayer(&layer, "sh", "bwrap", "squashfuse_ll", "unsquashfs"))
	if said := docker(layer.Bytes(), "import", "--change", "ENV PATH=/bin", "-", "worker:1"); !strings.HasPrefix(said, "sha256:") {
		t.Fatal(said)
	}
	probe := func(args ...string) string {
		words := append([]string{"run", "--rm", "--network=host", "--device=/dev/fuse", "--tmpfs=/tmp:exec", "-v", shipped.Path(t) + ":/bin/cl-worker:ro"}, args...)
		return docker(nil, append(words, "worker:1", "cl-worker", "probe")...)
	}
	for want, args := range map[string][]string{
		`(?m)^this node can run no container: .*(make|forbids) user namespaces: `:         nil,
		`(?m)^this node can run no container: .*does not let user namespaces mount /proc`: {"--security-opt=seccomp=unconfined"},
		`(?m)^builtin: `: {"--runtime=codalab"},
	} {
		if said := probe(args...); !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%v: the probe says, and not %s:\n%s", args, want, said)
		}
	}
}
