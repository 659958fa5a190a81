package testenv

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Azure is a place with Microsoft's programs for Azure (scripts/azure-tools).
type Azure struct{ dir string }

// AzureTools checks that Microsoft's programs are here. source is the way from the test's directory to that of the
// project.
func AzureTools(tb testing.TB, source string) Azure {
	tb.Helper()
	need(tb, azure, nil)
	_, err := exec.LookPath("node")
	need(tb, azure, err)
	lock, err := os.ReadFile(filepath.Join(source, "scripts/lib/azure/package-lock.json"))
	Must(tb, err)
	sum := sha256.Sum256(lock)
	cache, err := os.UserCacheDir()
	need(tb, azure, err)
	dir := filepath.Join(cache, "cl-slurm")
	if os.Geteuid() == 0 {
		dir = shared
	}
	dir = filepath.Join(dir, "azure", hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		need(tb, azure, fmt.Errorf("%w: run scripts/azure-tools up", err))
	}
	return Azure{dir: dir}
}

// Run runs a program in JavaScript. input is encoded as JSON for it, and its standard output is decoded into output.
func (a Azure) Run(tb testing.TB, script string, input, output any) {
	tb.Helper()
	path, err := filepath.Abs(script)
	Must(tb, err)
	data, err := json.Marshal(input)
	Must(tb, err)
	cmd := a.command(tb, path)
	var out, failed bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &out, &failed
	if err := cmd.Run(); err != nil {
		tb.Fatalf("%s: %v: %s", script, err, failed.String())
	}
	if err := json.Unmarshal(out.Bytes(), output); err != nil {
		tb.Fatalf("%s printed %s: %v", script, out.String(), err)
	}
}

// Watch starts a program in JavaScript. input is encoded as JSON in one line for it, and it prints to output until its
// standard input ends, which end does. end fails the test if the program fails.
func (a Azure) Watch(tb testing.TB, script string, input any, output io.Writer) (end func()) {
	tb.Helper()
	path, err := filepath.Abs(script)
	Must(tb, err)
	data, err := json.Marshal(input)
	Must(tb, err)
	cmd := a.command(tb, path)
	in, err := cmd.StdinPipe()
	Must(tb, err)
	var failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = output, &failed
	Must(tb, cmd.Start())
	_, err = in.Write(append(data, '\n'))
	Must(tb, err)
	end = sync.OnceFunc(func() {
		_ = in.Close() // the program may have ended
		if err := cmd.Wait(); err != nil {
			tb.Errorf("%s: %v: %s", script, err, failed.String())
		}
	})
	tb.Cleanup(end)
	return end
}

func (a Azure) command(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "node", args...)
	cmd.Dir = a.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NODE_PATH=" + filepath.Join(a.dir, "node_modules"), "HOME=" + tb.TempDir()}
	return cmd
}

// The account that azurite has without a configuration (Azurite: "Default Storage Account").
const (
	AzuriteAccount = "devstoreaccount1"
	AzuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azurite starts Microsoft's emulator of Azure Storage, and returns the address of the account's blobs. It ends with
// the test.
func (a Azure) Azurite(tb testing.TB) string {
	tb.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	Must(tb, err)
	address := free.Addr().String()
	Must(tb, free.Close())
	_, port, err := net.SplitHostPort(address)
	Must(tb, err)
	// It refuses newer versions of the interface without the last flag.
	cmd := a.command(tb, filepath.Join(a.dir, "node_modules/azurite/dist/src/blob/main.js"), "--blobHost", "127.0.0.1", "--blobPort", port,
		"--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck")
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	Must(tb, cmd.Start())
	var failed error
	ended := background.Go(func() { failed = cmd.Wait() })
	tb.Cleanup(func() {
		_ = cmd.Process.Kill() // its blobs are in its memory
		<-ended
	})
	Await(tb, "azurite answers", func() bool {
		select {
		case <-ended:
			tb.Fatalf("azurite ended: %v: %s", failed, log)
		default:
		}
		answer, err := http.Get("http://" + address) // a bare connection can meet itself
		if err == nil {
			_ = answer.Body.Close()
		}
		return err == nil
	})
	return "http://" + address + "/" + AzuriteAccount
}
