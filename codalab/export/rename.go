package export

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// MoveSweep makes the runs of an archived sweep those of the worksheet that is made of it, if it is a sweep.
func (a *Archive) MoveSweep(worksheet string) {
	for _, b := range a.Bundles {
		b.Metadata.MoveSweep(a.Worksheet.UUID, worksheet)
	}
}

// Rename gives the bundles that can be made of the archive other uuids, for a copy on one worksheet: where they are inputs of
// each other, on the worksheet, and in its texts. A tag of the copy has the old uuid (codalab.CopyTag). The uuids follow from
// the worksheet's and the old ones, so that a second call for the worksheet, with the archive opened again, gives the same.
func (a *Archive) Rename(worksheet string) {
	names, pairs := map[string]string{}, []string{}
	for _, b := range a.Bundles {
		if b.Type != "" && b.State.Final() && b.LeftOut == "" {
			digest := sha256.Sum256([]byte(worksheet + "\n" + b.UUID))
			names[b.UUID] = "0x" + hex.EncodeToString(digest[:16])
			pairs = append(pairs, b.UUID, names[b.UUID])
		}
	}
	rename := func(uuid *string) {
		if to, ok := names[*uuid]; ok {
			*uuid = to
		}
	}
	for i := range a.Bundles {
		b := &a.Bundles[i]
		if to, ok := names[b.UUID]; ok {
			if b.Metadata == nil {
				b.Metadata = codalab.Metadata{}
			}
			// Tags behind that of a sweep are settings.
			b.Metadata["tags"] = append([]string{codalab.CopyTag + b.UUID}, b.Metadata.Strings("tags")...)
			a.entries[to] = a.entries[b.UUID]
			delete(a.entries, b.UUID)
		}
		rename(&b.UUID)
		for j := range b.Dependencies {
			rename(&b.Dependencies[j].ParentUUID)
		}
	}
	text := strings.NewReplacer(pairs...)
	for i := range a.Items {
		rename(&a.Items[i].Bundle)
		a.Items[i].Value = text.Replace(a.Items[i].Value)
	}
}
