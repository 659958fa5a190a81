package server_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// secretValue is the value of alice's secrets.
const secretValue = "correct-horse-battery-staple"

// setSecret is the request to set secrets.
func setSecret(value string, names ...string) map[string]any {
	objects := []any{}
	for _, name := range names {
		objects = append(objects, map[string]any{"type": "secrets", "id": name, "attributes": map[string]string{"value": value}})
	}
	return map[string]any{"data": objects}
}

// quickly is for sites whose check-ins are not held.
func quickly(c *server.Config) { c.Hold = time.Millisecond }

// secretRun creates a run of alice that names the secret A, which she has, for the queue q.
func (s *site) secretRun() string {
	s.t.Helper()
	s.call("alice", "POST", "/secrets", setSecret(secretValue, "A")).ok()
	return s.run("x", map[string]any{"request_queue": "q", codalab.SecretsKey: []string{"A"}})
}

// knowsSecrets makes it a worker that gives runs their secrets.
func (w *testWorker) knowsSecrets() *testWorker {
	w.info.Secrets = true
	return w
}

// secretsOf asks for a run's secrets as a worker of a role.
func (s *site) secretsOf(role, worker, uuid string) answer {
	s.t.Helper()
	return s.call(role, "POST", "/workers/"+worker+"/secrets/"+uuid, struct{}{})
}

func TestSecretIsListedWithoutItsValueToItsUserAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if a := s.call("alice", "POST", "/secrets", setSecret(secretValue, "B", "A")).ok(); strings.Contains(a.body, secretValue) {
		t.Errorf("the answer is %s", a.body)
	}
	a := s.get("alice", "/secrets").ok()
	if a.text("data", 0, "id") != "A" || a.text("data", 1, "id") != "B" || a.value("data", 0, "attributes", "last_used") != 0.0 ||
		a.value("data", 0, "attributes", "lost") != false || strings.Contains(a.body, secretValue) {
		t.Errorf("the list is %s", a.body)
	}
	for _, role := range []string{"bob", "root"} {
		if a := s.get(role, "/secrets").ok(); strings.Contains(a.body, `"A"`) {
			t.Errorf("%s sees %s", role, a.body)
		}
		s.call(role, "DELETE", "/secrets", deletion("secrets", "A")).says(http.StatusNotFound, `You have no secret "A".`)
	}
	s.call("alice", "DELETE", "/secrets", deletion("secrets", "A")).is(http.StatusNoContent)
	s.call("alice", "DELETE", "/secrets", deletion("secrets", "A")).says(http.StatusNotFound, `You have no secret "A".`)
	if a := s.get("alice", "/secrets").ok(); strings.Contains(a.body, `"A"`) || !strings.Contains(a.body, `"B"`) {
		t.Errorf("the list is %s", a.body)
	}
}

func TestSecretsHaveBounds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, bad := range []struct {
		name, value, says string
	}{
		{"PATH", "x", "cannot be named PATH"},
		{"A-B", "x", "named as a variable"},
		{"A", "", "cannot be empty"},
		{"A", strings.Repeat("x", codalab.MaxSecretBytes+1), "16384 bytes, not 16385"},
		{"A", "x\x00y", "zero characters"},
		{"A", "x\xffy", "UTF-8"},
	} {
		s.call("alice", "POST", "/secrets", setSecret(bad.value, bad.name)).says(http.StatusBadRequest, bad.says)
	}
	s.call("alice", "POST", "/secrets", map[string]any{"data": []any{map[string]any{"type": "bundles", "id": "A", "attributes": map[string]string{"value": "x"}}}}).
		says(http.StatusBadRequest, "A secret has the type 'secrets'")
	for i := range codalab.MaxSecrets {
		s.call("alice", "POST", "/secrets", setSecret("x", "A"+strings.Repeat("x", i%10)+string(rune('a'+i/10)))).ok()
	}
	s.call("alice", "POST", "/secrets", setSecret("x", "ONE_MORE")).says(http.StatusForbidden, "You have 100 secrets already")
	s.call("alice", "POST", "/secrets", setSecret("y", "Aa")).ok() // replaces one
	s.call("bob", "POST", "/secrets", setSecret("x", "ONE_MORE")).ok()
}

func TestRunWhoseOwnerLacksASecretIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.call("bob", "POST", "/secrets", setSecret(secretValue, "A")).ok() // bob's is no help to alice
	names := map[string]any{codalab.SecretsKey: []string{"A"}}
	s.create("run", "job", "x", names).says(http.StatusBadRequest, "You have no secret A: set it with cl secret set A.")
	s.create("dataset", "data", "", names).says(http.StatusBadRequest, "Unexpected metadata key: secrets")
	s.create("run", "job", "x", map[string]any{codalab.SecretsKey: []string{"LD_PRELOAD"}}).says(http.StatusBadRequest, "cannot be named LD_PRELOAD")
}

// TestSecretsGoToTheWorkerThatHasClaimedTheRun asks for them before the claim, after it and after the end, and as
// everybody else.
func TestSecretsGoToTheWorkerThatHasClaimedTheRun(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"alice", "root"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, quickly)
			role, other := s.addWorkerToken(user, "w"), s.addWorkerToken("bob", "w")
			uuid := s.secretRun()
			w := s.worker(role, "w", "q").knowsSecrets()
			w.told(codalab.MessageRun)
			const refused = "has not claimed run"
			s.secretsOf(role, "w", uuid).says(http.StatusForbidden, refused)
			if !w.startBundle(uuid) {
				t.Fatal("not claimed")
			}
			s.call("alice", "POST", "/secrets", setSecret(secretValue+"-2", "A")).ok() // the present value counts
			a := s.secretsOf(role, "w", uuid).ok()
			if a.text("secrets", "A") != secretValue+"-2" || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v %s", a.header, a.body)
			}
			if a := s.get("alice", "/secrets").ok(); a.value("data", 0, "attributes", "last_used") == 0.0 {
				t.Errorf("its use is not noted: %s", a.body)
			}
			s.secretsOf(user, "w", uuid).ok() // a login of the worker's user is the worker, too
			s.secretsOf(user, "x", uuid).says(http.StatusForbidden, refused)
			s.secretsOf(role, "x", uuid).says(http.StatusForbidden, "This token is for worker w alone")
			for _, outsider := range []string{"bob", other} {
				a := s.secretsOf(outsider, "w", uuid)
				a.says(http.StatusForbidden, refused)
				if b := s.secretsOf(outsider, "w", codalab.NewUUID()); b.status != a.status || !strings.Contains(b.body, refused) {
					t.Errorf("a run that exists is refused with %d %q, another with %d %q", a.status, a.body, b.status, b.body)
				}
			}
			for _, path := range []string{"/bundles/" + uuid, "/secrets", "/bundles?keywords=.mine", "/interpret/worksheet/" + s.home("alice")} {
				if a := s.get("alice", path).ok(); strings.Contains(a.body, secretValue) {
					t.Errorf("%s has the value: %s", path, a.body)
				}
			}
			code := 0
			done := reportOf(uuid, codalab.StateFinalizing)
			done.ExitCode = &code
			w.told(codalab.MessageMarkFinalized, done)
			s.secretsOf(role, "w", uuid).says(http.StatusForbidden, refused)
		})
	}
}

func TestGroupWorkerOfAnotherUserGetsNoSecrets(t *testing.T) {
	t.Parallel()
	s := whose(t)
	open := s.run("x", map[string]any{"request_queue": "q"})
	secret := s.secretRun()
	for _, uuid := range []string{open, secret} {
		s.share("alice", "bundle", uuid, "lab", store.PermissionAll)
	}
	w := s.worker("bob", "w", "q").of("lab").knowsSecrets()
	if got := w.takes(); got != open {
		t.Fatalf("bob's worker is given %s", got)
	}
	var b codalab.Bundle
	testenv.Await(t, "the run with secrets waits for another worker", func() bool {
		w.checkIn()
		b = s.bundle("alice", secret)
		return b.State == codalab.StateStaged && strings.HasPrefix(b.Metadata.String("staged_status"), "No worker of queue q may have secrets: ")
	}, &b.State, &b.Metadata)
	// Even if it had the run, it would get none.
	_, err := s.store.Change(t.Context(), secret, func(b *store.Bundle) error {
		b.State, b.Worker = codalab.StatePreparing, store.Worker{User: "0x" + strings.Repeat("b", 32), ID: "w"}
		return nil
	})
	must(t, err)
	s.secretsOf("bob", "w", secret).says(http.StatusForbidden, "given to workers of its owner and of the site alone")
}

func TestRunWithSecretsWaitsForAWorkerThatGivesThem(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickly)
	stock := s.worker("root", "stock", "q") // as CodaLab's own
	uuid := s.secretRun()
	const want = "No worker of queue q may have secrets: a run with secrets needs a worker of yours or of the site, and not CodaLab's own."
	var status string
	testenv.Await(t, "the run waits for a worker that knows secrets", func() bool {
		stock.checkIn()
		status = s.bundle("alice", uuid).Metadata.String("staged_status")
		return status == want
	}, &status)
	if got := s.worker("root", "ours", "q").knowsSecrets().takes(); got != uuid {
		t.Errorf("ours is given %s", got)
	}
}

// TestSecretsOfARunServeItsOwnerAlone lets a colleague with all permissions try to get at the secrets of alice's run.
func TestSecretsOfARunServeItsOwnerAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickly)
	s.makeReaders()
	uuid := s.secretRun()
	s.share("alice", "bundle", uuid, "readers", store.PermissionAll)
	patch := func(role string, attributes map[string]any) answer {
		return s.call(role, "PATCH", "/bundles", edit("bundles", uuid, attributes))
	}
	meta := func(key string, value any) map[string]any {
		return map[string]any{"metadata": map[string]any{key: value}}
	}
	give := func(role string) answer {
		return s.call(role, "PATCH", "/bundles", map[string]any{"data": []any{map[string]any{
			"type": "bundles", "id": uuid, "relationships": map[string]any{"owner": map[string]any{"data": map[string]string{"type": "users", "id": "0x" + strings.Repeat("c", 32)}}},
		}}})
	}
	s.call("alice", "POST", "/secrets", setSecret("another", "B")).ok()
	for _, role := range []string{"carol", "alice", "root"} {
		patch(role, meta(codalab.SecretsKey, []string{"A", "B"})).says(http.StatusForbidden, "The secrets of a run cannot be changed")
		if a := give(role); a.status != http.StatusForbidden {
			t.Errorf("%s gives the run away: %d %s", role, a.status, a.body)
		}
	}
	patch("carol", meta("request_docker_image", "evil")).says(http.StatusForbidden, "only the owner can change its requests")
	patch("alice", meta("request_docker_image", "mine")).ok()
	patch("carol", meta("description", "nice")).ok()
	patch("carol", meta(codalab.SecretsKey, []string{"A"})).ok() // as it is: a whole form is sent back

	w := s.worker("root", "w", "q").knowsSecrets()
	w.takes()
	w.checkIn(reportOf(uuid, codalab.StateRunning))
	s.call("carol", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "write", "uuid": uuid, "subpath": "x", "string": "y"})).
		says(http.StatusForbidden, "only the owner can write into it")
	s.call("carol", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": uuid})).ok()
}

// TestDataDirectoryHasNoSecretInPlain looks for the value in all files of the data directory, and finds it there with the
// key alone.
func TestDataDirectoryHasNoSecretInPlain(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newSite(t, quickly, func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	uuid := s.secretRun()
	w := s.worker("root", "w", "q").knowsSecrets()
	w.takes()
	s.secretsOf("root", "w", uuid).ok()
	planted := filepath.Join(s.dir, "planted")
	must(t, os.WriteFile(planted, []byte("xx"+secretValue+"xx"), 0o600))
	var found []string
	must(t, filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secretValue)) {
			found = append(found, path)
		}
		return err
	}))
	if len(found) != 1 || found[0] != planted {
		t.Errorf("the value is in %q", found)
	}
	if strings.Contains(log.String(), secretValue) {
		t.Errorf("the log has the value: %s", log.String())
	}
	if !strings.Contains(log.String(), `request="POST /rest/workers/w/secrets/`+uuid+`"`) || !strings.Contains(log.String(), uuid+" A]") {
		t.Errorf("the audit log does not say who got which secret: %s", log.String())
	}
}

// TestLostKeyIsSaidAndMendedBySettingTheSecretAgain takes the key away, as a restore without it does.
func TestLostKeyIsSaidAndMendedBySettingTheSecretAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := newSite(t, quickly, func(c *server.Config) { c.SecretsKey = filepath.Join(dir, "key") })
	uuid := first.secretRun()
	w := first.worker("root", "w", "q").knowsSecrets()
	w.takes()
	must(t, os.Rename(filepath.Join(dir, "key"), filepath.Join(dir, "gone")))
	first.start(quickly, func(c *server.Config) { c.SecretsKey = filepath.Join(dir, "key") })
	if a := first.get("alice", "/secrets").ok(); a.value("data", 0, "attributes", "lost") != true {
		t.Errorf("the list is %s", a.body)
	}
	first.create("run", "job", "x", map[string]any{codalab.SecretsKey: []string{"A"}}).says(http.StatusBadRequest, "The server has lost the key of your secret A: set it again")
	first.secretsOf("root", "w", uuid).says(http.StatusNotFound, "has lost the key of the secret A")
	first.call("alice", "POST", "/secrets", setSecret("new value", "A")).ok()
	if a := first.secretsOf("root", "w", uuid).ok(); a.text("secrets", "A") != "new value" {
		t.Errorf("%s", a.body)
	}
	must(t, first.store.DeleteSecrets(context.Background(), "0x"+strings.Repeat("a", 32), []string{"A"}))
	first.secretsOf("root", "w", uuid).says(http.StatusNotFound, "The secret A has been removed: set it with cl secret set A")
}
