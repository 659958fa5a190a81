package cache

import (
	"strings"
	"testing"
)

// Other accounts of a cache's group write its records, leases and names.
func FuzzRecords(f *testing.F) {
	const token = "0123456789abcdef0123456789abcdef"
	f.Add(`{"format":1,"token":"` + token + `","size":5}`)
	f.Add(`{"token":"` + token + `","host":"h b n","pid":7,"began":"8"}`)
	f.Add(strings.Repeat("0", hashLength) + "." + token + "~12~ann%2Fbob")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := decodeRecord([]byte(text)); err == nil && !isHex(r.Token, tokenLength) {
			t.Errorf("%q is the record %+v", text, r)
		}
		if l, err := decodeLease([]byte(text)); err == nil && !isHex(l.Token, tokenLength) {
			t.Errorf("%q is the lease %+v", text, l)
		}
		s, err := parseSize(text)
		if err == nil && (s.bytes < 0 || s.name != text || strings.ContainsAny(s.id(), "/\x00")) {
			t.Errorf("%q is the size %+v", text, s)
		}
	})
}
