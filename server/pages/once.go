package pages

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"maps"
	"net/url"
	"slices"
	"sync"

	"github.com/cl-slurm/cl-slurm/server/rest"
)

// answer answers a form that has been acted on. It may be called for several requests, of the same user.
type answer func(*visit) error

// goTo is an answer that leads to an address of this server.
func goTo(address string) answer {
	return func(v *visit) error {
		rest.Go(v.ResponseWriter, v.Request, address)
		return nil
	}
}

const (
	// mostForms is the number of forms that are remembered, and mostMemory the memory for their answers, in bytes.
	mostForms  = 1000
	mostMemory = 32 << 20
	// perByte is the memory that an answer may take for a byte of its form: an empty line can become an empty text of a list.
	perByte = 16
)

// sentForms remembers the answers to forms, so that a form that is sent twice, as by a double click, acts once. Its zero value
// is ready. It is safe for concurrent use.
type sentForms struct {
	mu    sync.Mutex
	forms map[formKey]*sentForm
	// answered are the keys of the forms with an answer, the oldest first, which take so much memory.
	answered []formKey
	memory   int
}

// formKey is a digest of a form, its address and its user.
type formKey [sha256.Size]byte

// sentForm is a form that is acted on. Once done is closed it has its answer, or is forgotten.
type sentForm struct {
	done   chan struct{}
	answer answer
	// memory is the most that the answer takes, in bytes.
	memory int
}

func keyOf(v *visit, form url.Values) (key formKey, size int) {
	sum := sha256.New()
	write := func(text string) {
		size += len(text)
		_, _ = sum.Write(binary.AppendUvarint(nil, uint64(len(text)))) // a hash does not fail
		_, _ = io.WriteString(sum, text)
	}
	write(v.user.ID)
	write(v.URL.Path)
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range form[name] {
			write(name)
			write(value)
		}
	}
	return formKey(sum.Sum(nil)), size
}

// begin returns the form of a key, and whether the caller is the first to send it, who calls end. size is that of the form, in
// bytes.
func (s *sentForms) begin(key formKey, size int) (f *sentForm, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.forms[key]; f != nil {
		return f, false
	}
	if s.forms == nil {
		s.forms = map[formKey]*sentForm{}
	}
	f = &sentForm{done: make(chan struct{}), memory: perByte * size}
	s.forms[key] = f
	return f, true
}

// end remembers a form with an answer, and forgets one without.
func (s *sentForms) end(key formKey, f *sentForm, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(f.done)
	if a == nil {
		delete(s.forms, key)
		return
	}
	f.answer = a
	s.answered = append(s.answered, key)
	s.memory += f.memory
	for len(s.answered) > mostForms || s.memory > mostMemory {
		s.memory -= s.forms[s.answered[0]].memory
		delete(s.forms, s.answered[0])
		s.answered = slices.Delete(s.answered, 0, 1)
	}
}

// once acts on a form with a token of the template "once", and answers. If the same page has sent the same form before, once
// answers as it did then. A form that was refused, for which act returns an error or has answered itself and returns nil, may
// be sent again. act goes on when the browser leaves: with the second click it does. Nothing is remembered of a visitor who has
// not signed in, whose forms are refused.
func (p *Pages) once(v *visit, form url.Values, act func() (answer, error)) error {
	if form.Get("once") == "" || v.user.ID == "" {
		a, err := act()
		if err != nil || a == nil {
			return err
		}
		return a(v)
	}
	key, size := keyOf(v, form)
	for {
		f, first := p.sent.begin(key, size)
		if first {
			return p.actFirst(v, key, f, act)
		}
		select {
		case <-f.done:
		case <-v.Context().Done():
			return v.Context().Err()
		}
		if f.answer != nil {
			return f.answer(v)
		}
	}
}

func (p *Pages) actFirst(v *visit, key formKey, f *sentForm, act func() (answer, error)) (err error) {
	var a answer
	defer func() { p.sent.end(key, f, a) }()
	v.Request = v.WithContext(context.WithoutCancel(v.Context()))
	if a, err = act(); err != nil || a == nil {
		a = nil
		return err
	}
	return a(v)
}
