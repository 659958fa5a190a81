package tickets_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/tickets"
)

func at(text string) time.Time {
	t, err := time.Parse(time.DateTime, text)
	if err != nil {
		panic(err) // a test's own
	}
	return t
}

// The files were recorded from klist of Debian 12 (krb5-user 1.20.1, heimdal-clients 7.8), with LC_ALL=C and TZ=UTC0.
func TestTicketsEndIsReadOfEachKlist(t *testing.T) {
	t.Parallel()
	const of, cache = "ann@EXAMPLE.ORG", "FILE:/tmp/krb5cc_1001"
	for name, want := range map[string]tickets.Ticket{
		"mit-1.20.txt":         {Expires: at("2026-11-29 00:27:00"), RenewUntil: at("2026-12-05 14:27:00")},
		"heimdal-7.8-good.txt": {Expires: at("2026-11-29 00:27:00")},
		"heimdal-7.8-old.txt":  {},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		want.Kind, want.Of, want.Cache = tickets.Kerberos, of, cache
		if got, err := tickets.ParseKlist(string(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}

func TestTicketIsThatOfThePrincipalsOwnRealm(t *testing.T) {
	t.Parallel()
	const text = "Ticket cache: KCM:1001\nDefault principal: ann@EXAMPLE.ORG\n\nValid starting       Expires              Service principal\n" +
		"11/28/2026 13:48:02  11/28/2026 14:48:02  krbtgt/OTHER.ORG@EXAMPLE.ORG\n\trenew until 12/01/2026 13:48:02, Flags: FRA\n" +
		"11/28/2026 13:48:02  11/28/2026 23:48:02  krbtgt/EXAMPLE.ORG@EXAMPLE.ORG\n\trenew until 12/05/2026 13:48:02, Flags: FRIA\n"
	want := tickets.Ticket{Kind: tickets.Kerberos, Of: "ann@EXAMPLE.ORG", Cache: "KCM:1001", Expires: at("2026-11-28 23:48:02"), RenewUntil: at("2026-12-05 13:48:02")}
	if got, err := tickets.ParseKlist(text); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"", "klist: No credentials cache found (filename: /tmp/krb5cc_1001)\n", "Ticket cache: FILE:/tmp/krb5cc_1001\nDefault principal: ann@EXAMPLE.ORG\n"} {
		if got, err := tickets.ParseKlist(text); !errors.Is(err, tickets.ErrNone) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := tickets.ParseKlist("28.11.26 25:00:00  28.11.26 26:00:00  krbtgt/X@X\n"); err == nil || errors.Is(err, tickets.ErrNone) {
		t.Errorf("times of another form: %+v, %v", got, err)
	}
}

// The text has the form of tokens of OpenAFS.
func TestTokenOfAFSHasAYearThoughNoneIsPrinted(t *testing.T) {
	t.Parallel()
	const text = "\nTokens held by the Cache Manager:\n\nUser's (AFS ID 1001) tokens for afs@other.org [>> Expired <<]\n" +
		"User's (AFS ID 1001) tokens for afs@example.org [Expires Jan  2 03:04]\n   --End of list--\n"
	for now, want := range map[string]string{"2026-12-31 20:00:00": "2027-01-02 03:04:00", "2027-01-01 20:00:00": "2027-01-02 03:04:00", "2027-01-03 00:00:00": "2027-01-02 03:04:00"} {
		got, err := tickets.ParseTokens(text, at(now))
		if err != nil || got != (tickets.Ticket{Kind: tickets.AFS, Of: "example.org", Expires: at(want)}) {
			t.Errorf("%s: %+v, %v", now, got, err)
		}
		if got.Valid(at(now)) != (now < want) {
			t.Errorf("%s: valid %v", now, got.Valid(at(now)))
		}
	}
	got, err := tickets.ParseTokens("Tokens for afs@example.org [>> Expired <<]\n", at("2026-12-31 20:00:00"))
	if err != nil || got.Valid(time.Time{}) {
		t.Errorf("expired: %+v, %v", got, err)
	}
	if _, err := tickets.ParseTokens("\nTokens held by the Cache Manager:\n\n   --End of list--\n", at("2026-12-31 20:00:00")); !errors.Is(err, tickets.ErrNone) {
		t.Error(err)
	}
}

// Programs print the names that others have chosen.
func FuzzParse(f *testing.F) {
	f.Add("Ticket cache: FILE:/tmp/x\nDefault principal: a@B\n11/28/26 13:48:02  11/28/26 23:48:02  krbtgt/B@B\n\trenew until 12/05/26 13:48:02\n")
	f.Add("tokens for afs@x [Expires Feb 29 10:00]\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := tickets.ParseKlist(text); err != nil && got != (tickets.Ticket{}) {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := tickets.ParseTokens(text, time.Unix(1e9, 0)); err != nil && got != (tickets.Ticket{}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
