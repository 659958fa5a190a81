package contents

import (
	"strings"
	"testing"
)

// Ranges and URLs come from any user.
func FuzzRange(f *testing.F) {
	for _, header := range []string{"bytes=0-9", "bytes=5-", "bytes=-5", "bytes=0-1,3-4", " bytes=999999999999999999-0", "bytes=0x1-2"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		first, last, ok := parseRange(header)
		if ok && (first < 0 || last < 0 || last-first+1 > 1e18) {
			t.Errorf("%q is %d to %d", header, first, last)
		}
	})
}

func FuzzURL(f *testing.F) {
	for _, text := range []string{"https://a.example/x.tar.gz", "http://u:p@[::1]:80/..%2f..", "file:///etc/passwd", "https:///x", "http://a/%00", "ftp://a/b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parseURL(text)
		if err != nil {
			return
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			t.Errorf("%q would be fetched", text)
		}
		if name := urlName(u); name == "" || strings.Contains(name, "/") && name != "/" {
			t.Errorf("%q would be stored as %q", text, name)
		}
	})
}
