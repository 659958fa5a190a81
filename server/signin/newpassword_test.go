package signin

import (
	"strings"
	"testing"
)

func TestNewPasswordsThatGuessersTryFirstAreRefused(t *testing.T) {
	t.Parallel()
	for password, want := range map[string]string{
		"":                         "at least 10 characters, and this one has 0",
		"kei7ohPh9":                "at least 10 characters, and this one has 9",
		"pässwörds":                "and this one has 9",
		strings.Repeat("ab", 5):    "first that a guesser tries",
		"1234567890":               "first that a guesser tries",
		"0987654321":               "first that a guesser tries",
		"123456789a":               "first that a guesser tries",
		"abcdefghij":               "first that a guesser tries",
		"qwertyuiop":               "first that a guesser tries",
		"1q2w3e4r5t":               "first that a guesser tries",
		"password123!":             "first that a guesser tries",
		"P@ssw0rd2026":             "first that a guesser tries",
		"PasswordPassword":         "first that a guesser tries",
		"iloveyou!!":               "first that a guesser tries",
		"annabelle.w":              "first that a guesser tries", // the name
		"Annabelle.W1":             "first that a guesser tries",
		"annabelle.wannabelle.w":   "first that a guesser tries",
		"slurm12345":               "first that a guesser tries",
		"long\x00password":         "no control characters",
		"long\xffpassword":         "no control characters",
		strings.Repeat("äöü1", 50): "at most 256 bytes, and this one has 350",
	} {
		if err := CheckNewPassword(password, "annabelle.w"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", password, err, want)
		}
	}
	for _, password := range []string{
		"correct horse", "kei7ohPh9x", "drei kleine Fische", "пароль и слово", "🐟🐠🐡🦈🐙🦀🦐🦑🐚🐋", "password of annabelle", "1-800-PAT-RIOT", strings.Repeat("word7 ", 42),
	} {
		if err := CheckNewPassword(password, "annabelle.w"); err != nil {
			t.Errorf("%q: %v", password, err)
		}
	}
}
