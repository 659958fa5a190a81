package ledger

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// level takes half the time of level 6. It packs a row of three kilobytes into 474 bytes, where level 6 needs 429: the
// dictionary, not the level, makes rows small. A row is packed nine times in its life.
const level = 1

// dictionary is a history and a row of a usual bundle. With it, a row of three kilobytes compresses to half
// a kilobyte. Packed data can be unpacked with the same dictionary only, so it never changes.
//
//go:embed dictionary.txt
var dictionary []byte

// reader unpacks. text has the result of its last use.
type reader struct {
	flate io.Reader
	text  bytes.Buffer
}

// packer packs and unpacks. It reuses its compressors, because each needs a megabyte.
type packer struct{ writers, readers sync.Pool }

//nolint:gochecknoglobals // its contents are the same for all ledgers
var packs packer

// pack returns data as text for a column.
func (p *packer) pack(data []byte) (string, error) {
	var packed bytes.Buffer
	w, ok := p.writers.Get().(*flate.Writer)
	var err error
	if ok {
		w.Reset(&packed)
	} else {
		w, err = flate.NewWriterDict(&packed, level, dictionary)
	}
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", fmt.Errorf("pack: %w", err)
	}
	p.writers.Put(w)
	return base64.RawStdEncoding.EncodeToString(packed.Bytes()), nil
}

// unpack reverses pack.
func (p *packer) unpack(text string) ([]byte, error) {
	packed, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	from := bytes.NewReader(packed)
	r, ok := p.readers.Get().(*reader)
	if ok {
		r.text.Reset()
		err = r.flate.(flate.Resetter).Reset(from, dictionary) //nolint:forcetypeassert // every reader of flate is one
	} else {
		r = &reader{flate: flate.NewReaderDict(from, dictionary)}
	}
	if err == nil {
		_, err = r.text.ReadFrom(r.flate)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	data := bytes.Clone(r.text.Bytes())
	p.readers.Put(r)
	return data, nil
}
