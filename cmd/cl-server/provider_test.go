package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// An operator lists, adds and ends a user's sign-in by a provider while the server runs.
func TestUsersAreLinkedAndUnlinkedWhileItServes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		at := func(words ...string) []string { return append(words, flags...) }
		for _, name := range []string{"anna", "ben"} {
			does(t, "correct horse\n", at("user", "add", name)...)
		}
		serveAt(t.Context(), flags)
		const issuer = "https://login.example/realms/lab"
		link := func(name, subject string) []string {
			return at("user", "link", name, "--oidc-issuer", issuer, "--oidc-subject", subject)
		}
		if got := does(t, "", at("user", "link", "anna")...); got != "" {
			t.Errorf("before: %q", got)
		}
		does(t, "", link("anna", "7")...)
		if got, want := does(t, "", link("anna", "3")...), issuer+" 3\n"+issuer+" 7\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for _, name := range []string{"anna", "ben"} {
			refuses(t, "this person signs in as a user already; cl-server user unlink ends that", link(name, "7")...)
		}
		if got := does(t, "", at("user", "link", "ben")...); got != "" {
			t.Errorf("ben's are %q", got)
		}
		does(t, "", at("user", "unlink", "anna")...)
		refuses(t, "anna does not sign in by a provider", at("user", "unlink", "anna")...)
		if got, want := does(t, "", link("ben", "7")...), issuer+" 7\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		does(t, "", at("user", "rm", "ben")...)
		does(t, "", link("anna", "7")...) // a removed user holds nothing
		for _, words := range [][]string{{"user", "link", "nobody"}, {"user", "unlink", "nobody"}} {
			refuses(t, "there is no user nobody", at(words...)...)
		}
	})
}

func TestBadFlagsOfAProvider(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const whole = "run --oidc-issuer https://login.example --oidc-client-id codalab --public-url https://codalab.example "
	for args, says := range map[string]string{
		"run --oidc-client-id codalab":                                               "the flags of a provider need --oidc-issuer",
		"run --oidc-client-secret-file " + secret("unused", "x", 0o600):              "the flags of a provider need --oidc-issuer",
		"run --oidc-username-claim sub":                                              "the flags of a provider need --oidc-issuer",
		"run --oidc-create-users":                                                    "the flags of a provider need --oidc-issuer",
		"run --oidc-issuer https://login.example":                                    "a provider needs --oidc-client-id, and --public-url",
		"run --oidc-issuer https://login.example --public-url https://h":             "a provider needs --oidc-client-id, and --public-url",
		"run --oidc-issuer https://login.example --oidc-client-id c":                 "a provider needs --oidc-client-id, and --public-url",
		"run --oidc-issuer login.example --oidc-client-id c --public-url https://h":  `--oidc-issuer "login.example": want https://HOST`,
		"run --oidc-issuer http://login.example --oidc-client-id c --public-url h":   `--oidc-issuer "http://login.example": want https, which only`,
		"run --oidc-issuer https://l/?x=1 --oidc-client-id c --public-url https://h": `--oidc-issuer "https://l/?x=1": want https://HOST`,
		"run --oidc-issuer https://u:p@l --oidc-client-id c --public-url https://h":  `--oidc-issuer "https://u:p@l": want https://HOST`,
		"run --oidc-issuer https://l --oidc-client-id c --public-url http://h.org/":  `--public-url "http://h.org": want https, which only`,
		"run --oidc-issuer https://l --oidc-client-id c --public-url https://h#x":    `--public-url "https://h#x": want https://HOST`,
		whole + "--oidc-create-users":                                                "--oidc-create-users needs --oidc-username-claim",
		whole + "--oidc-client-secret-file " + dir + "/no":                           "read client secret file: open ",
		whole + "--oidc-client-secret-file " + secret("open", "x\n", 0o644):          "may be read by others: chmod 600 it",
		whole + "--oidc-client-secret-file " + secret("empty", "\n", 0o600):          "has to have one line: the client secret",
		"user link a --oidc-subject 7":                                               "--oidc-issuer and --oidc-subject need each other",
		"user link a --oidc-issuer https://l":                                        "--oidc-issuer and --oidc-subject need each other",
		"user link a --oidc-issuer l --oidc-subject 7":                               `--oidc-issuer "l": want https://HOST`,
		"user link":     "accepts 1 arg(s), received 0",
		"user unlink":   "accepts 1 arg(s), received 0",
		"user link a b": "accepts 1 arg(s), received 2",
	} {
		data := filepath.Join(t.TempDir(), "data")
		_, stderr, code := start(t.Context(), "", append(strings.Fields(args), "--data", data)...)
		if got := code(); got != program.ExitUsage || !strings.Contains(stderr.String(), says) || strings.Contains(stderr.String(), "\n") {
			t.Errorf("%s: exit %d, %s", args, got, stderr)
		}
		if _, err := os.Stat(data); err == nil {
			t.Errorf("%s: the data directory is there", args)
		}
	}
}
