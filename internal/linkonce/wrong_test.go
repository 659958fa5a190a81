package linkonce

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// The check is worth something: protocols with one thing wrong do not pass it.
func TestWrongProtocolsAreCaught(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]struct {
		settle protocol
		broken string // is among what the check says
	}{
		"decides by what link answers":    {byAnswer, "takes A for its own: false"},
		"has another record at each try":  {anotherRecord, "takes A for its own: false"},
		"looks only before it links":      {lookingFirst, `believes "B", and "A" stands`},
		"takes its link back at the end":  {takingBack, `A stood, and "" does now`},
		"renames":                         {renaming, `A was believed, and "B" stands`},
		"believes that nothing is there":  {believingAbsence, "believes that nothing stands"},
		"believes half a record":          {believingHalf, "believes that nothing stands"},
		"does not flush":                  {unflushed, `A was believed, and "" stands`},
		"flushes and does not read again": {readingOnce, `A believes "A", and "" stands`},
		"flushes before it reads":         {flushingFirst, `was believed, and "" stands`},
		"never writes a temporary again":  {oneTemporary, "it has no end"},
		"gives up at the first error":     {impatient, "gave up before its time"},
		"does not remove its temporary":   {untidy, "tmp1 was left behind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for faults := range 4 {
				c := check{site: site{settle: wrong.settle, names: []string{"A", "Bridge"}, faults: faults, crashes: 1, times: 1}}
				broken, trace := c.run()
				if broken == "" {
					continue
				}
				t.Logf("%d faults: %s:\n\t%s", faults, broken, strings.Join(trace[:min(len(trace), 20)], "\n\t"))
				if !strings.Contains(broken, wrong.broken) {
					t.Errorf("caught, but not because %s", wrong.broken)
				}
				return
			}
			t.Error("it passes")
		})
	}
}

func byAnswer(_ context.Context, p *process, record string) (string, bool, error) {
	for {
		temporary, err := p.write(record)
		if err == nil {
			linkErr := p.link(temporary)
			_ = p.remove(temporary)
			standing, err := believe(p.disk(), whole)
			if err == nil && (linkErr == nil || errors.Is(linkErr, fs.ErrExist)) {
				return standing, linkErr == nil, nil
			}
		}
		if err := p.pause(); err != nil {
			return "", false, err
		}
	}
}

func anotherRecord(ctx context.Context, p *process, record string) (string, bool, error) {
	d := p.disk()
	d.pause = func(context.Context) error { return syscall.ETIME } // settle tries once
	for {
		standing, err := settle(ctx, d, []byte(record), whole)
		if err == nil {
			return standing, standing == record, nil
		}
		if err := p.pause(); err != nil {
			return "", false, err
		}
		record = strings.ToLower(record)
	}
}

func lookingFirst(ctx context.Context, p *process, record string) (string, bool, error) {
	if standing, err := p.read(); err == nil {
		return standing, false, nil
	}
	d := p.disk()
	d.read = func() ([]byte, error) { return []byte(record), nil }
	standing, err := settle(ctx, d, []byte(record), whole)
	return standing, err == nil, err
}

func takingBack(ctx context.Context, p *process, record string) (string, bool, error) {
	standing, own, err := settled(ctx, p, record)
	if err != nil {
		if standing, readErr := p.read(); readErr == nil && standing == record {
			_ = p.withdraw()
		}
	}
	return standing, own, err
}

// with is the protocol on a disk that is not quite what it is.
func with(ctx context.Context, p *process, record string, decode func([]byte) (string, error), change func(*disk)) (string, bool, error) {
	d := p.disk()
	change(&d)
	standing, err := settle(ctx, d, []byte(record), decode)
	return standing, standing == record, err
}

func anything(data []byte) (string, error) { return string(data), nil }

func nothing() error { return nil }

func renaming(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, whole, func(d *disk) { d.link = p.rename })
}

func believingAbsence(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, anything, func(d *disk) {
		read := d.read
		d.read = func() ([]byte, error) {
			data, err := read()
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return data, err
		}
	})
}

func believingHalf(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, anything, func(*disk) {})
}

func unflushed(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, whole, func(d *disk) { d.flush = nothing })
}

func readingOnce(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, whole, func(d *disk) {
		read, flush := d.read, d.flush
		var seen []byte
		flushed := false
		d.flush = func() error {
			err := flush()
			flushed = err == nil
			return err
		}
		d.read = func() (data []byte, err error) {
			if !flushed {
				seen, err = read()
			}
			flushed = false
			return seen, err
		}
	})
}

func flushingFirst(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, whole, func(d *disk) {
		read := d.read
		var seen []byte
		again := false
		d.read = func() (data []byte, err error) {
			if again {
				again = false
				return seen, nil
			}
			if err := p.flush(); err != nil {
				return nil, err
			}
			seen, err = read()
			again = err == nil
			return seen, err
		}
		d.flush = nothing
	})
}

func oneTemporary(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, whole, func(d *disk) {
		link := d.link
		d.link = func(temporary string) error {
			if link(temporary) != nil {
				return syscall.EIO
			}
			return nil
		}
	})
}

func impatient(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, whole, func(d *disk) {
		d.pause = func(context.Context) error { return syscall.ETIME }
	})
}

func untidy(ctx context.Context, p *process, record string) (string, bool, error) {
	return with(ctx, p, record, whole, func(d *disk) { d.remove = func(string) error { return nil } })
}
