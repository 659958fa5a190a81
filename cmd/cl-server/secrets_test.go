package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/vault"
)

// withSecret serves the data for as long as use runs, with a client of alice, who has been added.
func withSecret(t *testing.T, flags []string, use func(ctx context.Context, alice *client.Client)) (log string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address, text, ended := serveAt(ctx, flags)
	alice, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "alice", "correct horse", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	use(ctx, alice)
	stop()
	ended()
	return text.String()
}

func setSecret(t *testing.T, name, value string) func(context.Context, *client.Client) {
	t.Helper()
	return func(ctx context.Context, alice *client.Client) {
		if err := alice.SetSecret(ctx, name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// isLost checks that alice has one secret, and whether the server can decrypt it.
func isLost(t *testing.T, want bool) func(context.Context, *client.Client) {
	t.Helper()
	return func(ctx context.Context, alice *client.Client) {
		if have, err := alice.Secrets(ctx); err != nil || len(have) != 1 || have[0].Lost != want {
			t.Errorf("%v, %v; want lost %t", have, err, want)
		}
	}
}

// TestBackupHasNoKeyOfSecrets restores one, and puts the key back.
func TestBackupHasNoKeyOfSecrets(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, dir string, flags []string) {
		does(t, "correct horse", append([]string{"user", "add", "alice"}, flags...)...)
		withSecret(t, flags, setSecret(t, "A", "hunter2hunter2"))
		backup, restored := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored")
		_, stderr, code := start(t.Context(), "", append([]string{"backup", backup}, flags...)...)
		if code() != 0 || !strings.Contains(stderr.String(), "the backup has 1 secrets of users, and not the key") {
			t.Errorf("the backup says %s", stderr)
		}
		if _, err := os.Stat(filepath.Join(backup, "secrets-key")); err == nil {
			t.Error("the backup has the key")
		}
		does(t, "", "restore", backup, "--data", restored)
		to := []string{"--data", restored}
		if log := withSecret(t, to, isLost(t, true)); !strings.Contains(log, "users' secrets are encrypted with another key") {
			t.Errorf("the log says %s", log)
		}
		refuses(t, "--secrets-key: there is no file /nowhere", append([]string{"run", "--secrets-key", "/nowhere"}, to...)...)
		log := withSecret(t, append([]string{"--secrets-key", filepath.Join(dir, "secrets-key")}, to...), isLost(t, false))
		if strings.Contains(log, "another key") {
			t.Errorf("the log says %s", log)
		}
	})
}

// TestSecretsGetANewKey replaces the key, also after an interruption.
func TestSecretsGetANewKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, dir string, flags []string) {
		path := filepath.Join(dir, "secrets-key")
		rekey := append([]string{"secrets", "rekey"}, flags...)
		does(t, "correct horse", append([]string{"user", "add", "alice"}, flags...)...)
		refuses(t, "no such file or directory", rekey...)
		withSecret(t, flags, func(ctx context.Context, alice *client.Client) {
			setSecret(t, "A", "hunter2hunter2")(ctx, alice)
			refuses(t, "another cl-server is using it", rekey...) //nolint:contextcheck // it takes the test's
		})
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if said := does(t, "", rekey...); said != "1 secrets are encrypted with a new key.\n" {
			t.Error(said)
		}
		now, err := os.ReadFile(path)
		if err != nil || string(now) == string(old) {
			t.Fatalf("the key is the old one, or %v", err)
		}
		withSecret(t, flags, isLost(t, false))
		// An interrupted try had encrypted the secrets, and not put its key in the place of the old one.
		if err := os.WriteFile(path, old, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", now, 0o600); err != nil {
			t.Fatal(err)
		}
		does(t, "", rekey...)
		withSecret(t, flags, isLost(t, false))
		if left, err := filepath.Glob(path + "?*"); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		refuses(t, "chmod 600 it", append([]string{"run"}, flags...)...)
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		// The key was lost, and the server has another one. One secret that is lost keeps no other from a new key.
		if err := os.WriteFile(path, []byte(vault.NewKeyText()), 0o600); err != nil {
			t.Fatal(err)
		}
		withSecret(t, flags, setSecret(t, "B", "hunter2hunter2"))
		if said := does(t, "", rekey...); said != "1 secrets are encrypted with a new key.\n"+
			"1 secrets stay as they are, because this was not their key: their owners have to set them again.\n" {
			t.Error(said)
		}
	})
}
