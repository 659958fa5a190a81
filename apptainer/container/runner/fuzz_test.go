package runner

import "testing"

// The kernel writes the text, and a container's addresses are in it.
func FuzzListeners(f *testing.F) {
	f.Add("  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 12345 1\n", 8080)
	f.Add("0: 00000000000000000000000001000000:0050 x 0A a b c d e 9", 80)
	f.Fuzz(func(t *testing.T, text string, port int) {
		for _, l := range parseListeners(text, port) {
			if !l.at.IsValid() || port < 0 || port > 65535 {
				t.Errorf("%q has a listener %v on port %d", text, l, port)
			}
		}
	})
}
