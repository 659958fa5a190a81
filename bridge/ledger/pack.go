package ledger

import (
	"bytes"
	"compress/flate"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"sync"
)

// dictionary is a history and a row of a usual bundle. Rows and histories are packed as what
// they differ from it, which makes a row of three kilobytes one of half a kilobyte. What was
// packed can be read with this very dictionary only, so it never changes.
//
//go:embed dictionary.txt
var dictionary []byte

// packer packs and unpacks. Its compressors hold a megabyte each, and are used again.
type packer struct{ writers, readers sync.Pool }

//nolint:gochecknoglobals // what is kept in it is the same for all ledgers
var packs packer

// pack returns data, which begins with { or [, in a form that a column of text takes.
func (p *packer) pack(data []byte) (string, error) {
	var packed bytes.Buffer
	w, ok := p.writers.Get().(*flate.Writer)
	var err error
	if ok {
		w.Reset(&packed)
	} else {
		w, err = flate.NewWriterDict(&packed, flate.DefaultCompression, dictionary)
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

// unpack returns what was packed. Text that is not packed, of a version that did not pack, it
// returns as it is.
func (p *packer) unpack(text string) ([]byte, error) {
	if text == "" || strings.ContainsAny(text[:1], "{[") {
		return []byte(text), nil
	}
	packed, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	from := bytes.NewReader(packed)
	r, ok := p.readers.Get().(io.ReadCloser)
	if ok {
		resetter, _ := r.(flate.Resetter) // every reader of flate is one
		err = resetter.Reset(from, dictionary)
	} else {
		r = flate.NewReaderDict(from, dictionary)
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(r)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	p.readers.Put(r)
	return data, nil
}
