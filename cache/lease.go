package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/linkonce"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// holderOfLease is the process that fills an entry.
type holderOfLease struct {
	// Token names the lease, and what is made under it.
	Token string `json:"token"`
	// Host names a host, its boot and its PID namespace. PID is a process there, which
	// began at Began (in ticks after the boot: proc(5), starttime).
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Began string `json:"began"`
}

func (h holderOfLease) String() string {
	host, _, _ := strings.Cut(h.Host, " ")
	return fmt.Sprintf("host %s, process %d", host, h.PID)
}

func decodeLease(data []byte) (holderOfLease, error) {
	var h holderOfLease
	if err := json.Unmarshal(data, &h); err != nil {
		return h, err //nolint:wrapcheck // callers word it
	}
	if !isHex(h.Token, tokenLength) {
		return h, errors.New("no token")
	}
	return h, nil
}

// self is this process as a holder, without a token.
func self(host string) (holderOfLease, error) {
	if host == "" {
		name, err := os.Hostname()
		if err != nil {
			return holderOfLease{}, fmt.Errorf("name this host: %w", err)
		}
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return holderOfLease{}, fmt.Errorf("name this host's start: %w", err)
		}
		pids, err := os.Readlink("/proc/self/ns/pid") // a number means another process elsewhere
		if err != nil {
			return holderOfLease{}, fmt.Errorf("name this host's processes: %w", err)
		}
		host = name + " " + strings.TrimSpace(string(boot)) + " " + pids
	}
	self, err := procstat.Read(os.Getpid())
	if err != nil {
		return holderOfLease{}, fmt.Errorf("name this process: %w", err)
	}
	return holderOfLease{Host: host, PID: os.Getpid(), Began: strconv.FormatUint(self.Start, 10)}, nil
}

// ended reports whether a process is provably gone. It is false for every process
// of another host.
func (c *Cache) ended(h holderOfLease) bool {
	if h.Host != c.self.Host {
		return false
	}
	if errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH) {
		return true
	}
	p, err := procstat.Read(h.PID) // which mounts of /proc hide from other users
	return err == nil && (p.Ended() || strconv.FormatUint(p.Start, 10) != h.Began)
}

// lease is this process's right to fill a key, for now.
type lease struct {
	cache *Cache
	path  string
	holderOfLease

	ctx    context.Context //nolint:containedctx // ends when the lease is lost
	cancel context.CancelCauseFunc
	// confirmed is when the file server last took the lease for alive, by this
	// process's own clock.
	confirmed atomic.Pointer[time.Time]
	refresher sync.WaitGroup
}

// tryLease asks for the lease of a key once. It returns the lease, or the process
// that has it, or neither where the caller should ask again.
func (c *Cache) tryLease(ctx context.Context, e entry, mine holderOfLease) (*lease, *holderOfLease, error) {
	path := filepath.Join(c.place(leasesPlace), e.hash)
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, nil, fmt.Errorf("encode lease: %w", err)
	}
	asked := time.Now() //nolint:forbidigo // the trust in a lease is measured by this process's clock
	short, cancel := context.WithTimeout(ctx, c.o.Term/2)
	defer cancel()
	standing, err := linkonce.Settle(short, path, text, c.fileMode(), decodeLease)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("take a lease: %w", err)
	case standing.Token == mine.Token:
		return c.begin(ctx, path, mine, asked), nil, nil
	}
	if c.ended(standing) {
		c.inherit(e, standing)
		return nil, nil, c.dropLease(path, standing.Token)
	}
	late, err := c.isLate(path)
	if err != nil || !late {
		return nil, &standing, err
	}
	return nil, nil, c.dropLease(path, standing.Token)
}

// isLate reports whether the lease at path went one and a half terms without a
// refresh, by the clock of the file server. The holder stops trusting it
// after one term.
func (c *Cache) isLate(path string) (bool, error) {
	now, err := c.probe(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	info, err := openedInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at a lease: %w", err)
	}
	return now.Sub(info.ModTime()) > c.o.Term+c.o.Term/2, nil
}

// dropLease removes the lease with this token from path. If it finds that it took
// another process's lease, it puts that back. Should it fail to, that process
// notices before it publishes.
func (c *Cache) dropLease(path, token string) error {
	data, err := readFile(path)
	if standing, decodeErr := decodeLease(data); err == nil && decodeErr == nil && standing.Token != token {
		return nil
	}
	aside := filepath.Join(filepath.Dir(path), trashPrefix+newToken())
	err = moveTo(path, aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove a lease: %w", err)
	}
	data, err = readFile(aside)
	if standing, decodeErr := decodeLease(data); err == nil && decodeErr == nil && standing.Token != token {
		_ = os.Link(aside, path)
	}
	return remove(aside)
}

// begin keeps a lease alive until release.
func (c *Cache) begin(ctx context.Context, path string, mine holderOfLease, asked time.Time) *lease {
	l := &lease{cache: c, path: path, holderOfLease: mine}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.confirmed.Store(&asked)
	l.refresher.Go(l.refresh)
	return l
}

// refresh tells the file server now and then that the holder lives, and cancels
// the lease's context when it can no longer be sure that others know.
func (l *lease) refresh() {
	for pause.For(l.ctx, l.cache.o.Term/4) == nil {
		asked := time.Now() //nolint:forbidigo // as in tryLease
		data, err := readFile(l.path)
		if err == nil {
			standing, decodeErr := decodeLease(data)
			if decodeErr == nil && standing.Token != l.Token {
				l.cancel(ErrLost)
				return
			}
			if err = errors.Join(decodeErr, touchNow(l.path)); err == nil {
				l.confirmed.Store(&asked)
			}
		}
		if !l.holds() {
			l.cancel(ErrLost)
		}
	}
}

// holds reports whether nobody can have taken the lease over.
func (l *lease) holds() bool {
	return context.Cause(l.ctx) == nil && l.trusted()
}

// trusted is like holds, but ignores whether the callers of the fill have left.
func (l *lease) trusted() bool {
	return !errors.Is(context.Cause(l.ctx), ErrLost) && time.Since(*l.confirmed.Load()) < l.cache.o.Term //nolint:forbidigo // as in tryLease
}

// release ends a lease. One that cannot be given back is over when its term is.
func (l *lease) release() {
	l.cancel(nil)
	l.refresher.Wait()
	_ = l.cache.dropLease(l.path, l.Token)
}
