package probe

import (
	"strings"
	"testing"
)

// A driver prints the text, whose form changes with its versions.
func FuzzParseSMI(f *testing.F) {
	f.Add("Driver Version : 535.1\nCUDA Version : 12.2\nGPU 00000000:07:00.0\n    Product Name : X\n    MIG Mode\n        Current : Enabled\n")
	f.Add("GPU \n : \nGPU UUID : a : b\n")
	f.Fuzz(func(t *testing.T, text string) {
		s := parseSMI(text)
		if n := strings.Count("\n"+text, "\nGPU "); len(s.GPUs) > n {
			t.Errorf("%d GPUs in %q", len(s.GPUs), text)
		}
		_ = (GPUs{SMI: s, Module: "1", Open: []int{0}, Present: []int{0}}).Checks(nil)
	})
}

func FuzzIndexes(f *testing.F) {
	for _, list := range []string{"0,2", "0-3", "", "-", "1-", "0-99999999999", "GPU-1"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		for _, n := range indexes(list) {
			if n < 0 {
				t.Errorf("%q has %d", list, n)
			}
		}
	})
}
