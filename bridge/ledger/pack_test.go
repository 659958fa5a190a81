package ledger

import "testing"

// Ledgers have data that earlier versions packed. Another dictionary would unpack it to other text.
func TestWhatWasPackedOnceIsUnpackedForever(t *testing.T) {
	t.Parallel()
	for packed, want := range map[string]string{
		"QumIGRrgB0gdsXRwtQ6rgGHdZ0RMgjrQkGyAtQtdCwgAAP//": `{"bundle":"0x10000000000000000000000000000000","queue":"gpu","phase":"queued","reason":"job 123456: sbatch accepted it"}`,
		"go4aWBigA1JHDWIBAQAA//8":                          `[[1,1,1800000000000000000,"claiming",0,0,"the server offered the bundle"]]`,
	} {
		if got, err := packs.unpack(packed); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %s", packed, got, err, want)
		}
	}
}
