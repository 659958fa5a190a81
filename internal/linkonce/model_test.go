package linkonce

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// whole decodes the records of the check.
func whole(data []byte) (string, error) {
	if len(data) == 0 {
		return "", errors.New("empty")
	}
	return string(data), nil
}

// settled is the protocol itself.
func settled(ctx context.Context, d disk, record string) (string, bool, error) {
	standing, err := settle(ctx, d, []byte(record), whole)
	return standing, standing == record, err
}

// The promises: the standing record changes only by a crash of the file server, and never
// after some process has believed it. All processes that learn the record learn the same
// one, it stands at that time, and only its owner owns it: so a bridge and a worker never
// both own. If no process crashed or gave up, one of them is the owner. Every process
// ends once the faults end, does not give up too early, and leaves no temporary that it
// could remove.
//
// A worker and a bridge run the same code; the names are for the reader.
func TestEveryOrderOfCallsAndFaultsKeepsThePromises(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]site{
		"a worker that tries again":                {names: []string{"A"}, faults: 5, mortals: true, times: 2},
		"a worker and its bridge, which try again": {names: []string{"A", "Bridge"}, faults: 3, mortals: true, times: 2},
		"two workers and their bridge":             {names: []string{"A", "B", "Closer"}, faults: 2, times: 1},
	} {
		s.settle, s.crashes = settled, 1
		if testing.Short() {
			s.faults = 1
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &check{site: s}
			if broken, trace := c.run(); broken != "" {
				t.Fatalf("%s:\n\t%s", broken, strings.Join(trace, "\n\t"))
			}
			t.Logf("%d faults: %d runs through %d states", s.faults, c.runs, len(c.seen))
		})
	}
}

// This shows that the check can fail: protocols with one fault do not pass it.
func TestWrongProtocolsAreCaught(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]struct {
		settle protocol
		broken string // a part of what the check returns
	}{
		"decides by what link answers":    {byAnswer, "takes A for its own: false"},
		"has another record at each try":  {anotherRecord, "takes A for its own: false"},
		"renames":                         {renaming, `A was believed, and "B" stands`},
		"believes half a record":          {believingHalf, "believes that nothing stands"},
		"does not flush":                  {unflushed, `A was believed, and "" stands`},
		"flushes and does not read again": {readingOnce, `A believes "A", and "" stands`},
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
				if !strings.Contains(broken, wrong.broken) {
					t.Errorf("caught, but not because %s: %s:\n\t%s", wrong.broken, broken, strings.Join(trace, "\n\t"))
				}
				return
			}
			t.Error("it passes")
		})
	}
}

func byAnswer(ctx context.Context, d disk, record string) (string, bool, error) {
	for {
		temporary, err := d.write([]byte(record))
		if err == nil {
			linkErr := d.link(temporary)
			_ = d.remove(temporary)
			standing, err := confirm(d, whole)
			if err == nil && (linkErr == nil || errors.Is(linkErr, fs.ErrExist)) {
				return standing, linkErr == nil, nil
			}
		}
		if err := d.pause(ctx); err != nil {
			return "", false, err
		}
	}
}

func anotherRecord(ctx context.Context, d disk, record string) (string, bool, error) {
	once := d
	once.pause = func(context.Context) error { return syscall.ETIME }
	for {
		standing, own, err := settled(ctx, once, record)
		if err == nil {
			return standing, own, nil
		}
		if err := d.pause(ctx); err != nil {
			return "", false, err
		}
		record = strings.ToLower(record)
	}
}

func renaming(ctx context.Context, d disk, record string) (string, bool, error) {
	link := d.link
	d.link = func(temporary string) error { return link(replaces + temporary) }
	return settled(ctx, d, record)
}

func believingHalf(ctx context.Context, d disk, record string) (string, bool, error) {
	standing, err := settle(ctx, d, []byte(record), func(data []byte) (string, error) { return string(data), nil })
	return standing, standing == record, err
}

func unflushed(ctx context.Context, d disk, record string) (string, bool, error) {
	d.flush = func() error { return nil }
	return settled(ctx, d, record)
}

func readingOnce(ctx context.Context, d disk, record string) (string, bool, error) {
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
	return settled(ctx, d, record)
}

func oneTemporary(ctx context.Context, d disk, record string) (string, bool, error) {
	link := d.link
	d.link = func(temporary string) error {
		if link(temporary) != nil {
			return syscall.EIO
		}
		return nil
	}
	return settled(ctx, d, record)
}

func impatient(ctx context.Context, d disk, record string) (string, bool, error) {
	d.pause = func(context.Context) error { return syscall.ETIME }
	return settled(ctx, d, record)
}

func untidy(ctx context.Context, d disk, record string) (string, bool, error) {
	d.remove = func(string) error { return nil }
	return settled(ctx, d, record)
}
