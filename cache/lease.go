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
	// Token names the lease and the content.
	Token string `json:"token"`
	// Host names a host, its boot and its PID namespace. Began is the start time of process PID
	// there, in ticks after the boot (proc(5), starttime).
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
		return h, err
	}
	if !isHex(h.Token, tokenLength) {
		return h, errors.New("no token")
	}
	return h, nil
}

// self returns this process as a holder, without a token.
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
		pids, err := os.Readlink("/proc/self/ns/pid") // other namespaces use the same numbers for other processes
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

// ended reports whether a process is provably gone. It returns false for every process of another
// host.
func (c *Cache) ended(h holderOfLease) bool {
	if h.Host != c.self.Host {
		return false
	}
	if errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH) {
		return true
	}
	p, err := procstat.Read(h.PID) // mounts of /proc may hide processes of other users
	return err == nil && (p.Ended() || strconv.FormatUint(p.Start, 10) != h.Began)
}

// lease is this process's temporary right to fill a key.
type lease struct {
	cache *Cache
	path  string
	holderOfLease

	ctx    context.Context //nolint:containedctx // ends when the lease is lost
	cancel context.CancelCauseFunc
	// confirmed is the time of the last successful refresh, by this process's own clock.
	confirmed atomic.Pointer[time.Time]
	refresher sync.WaitGroup
}

// tryLease tries once to take the lease of a key. It returns the lease, or the process that has it,
// or neither if the caller should try again.
func (c *Cache) tryLease(ctx context.Context, e entryNames, mine holderOfLease) (*lease, *holderOfLease, error) {
	path := filepath.Join(c.place(leasesPlace), e.hash)
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, nil, fmt.Errorf("encode lease: %w", err)
	}
	asked := time.Now()
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

// isLate reports whether the lease at path was not refreshed for one and a half terms, by the file
// server's clock. Its process stops trusting it after one term.
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

// dropLease removes the lease with this token from path. If it has taken another process's lease
// instead, it puts that back. If that fails, the other process notices before it publishes.
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

// refresh updates the lease's time every quarter of a term. It cancels the lease's context when
// others may believe that the lease is over.
func (l *lease) refresh() {
	for pause.For(l.ctx, l.cache.o.Term/4) == nil {
		asked := time.Now()
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

// holds reports whether the lease is trusted and its fill still has callers.
func (l *lease) holds() bool {
	return context.Cause(l.ctx) == nil && l.trusted()
}

// trusted reports whether no other process can have taken the lease over.
func (l *lease) trusted() bool {
	return !errors.Is(context.Cause(l.ctx), ErrLost) && time.Since(*l.confirmed.Load()) < l.cache.o.Term
}

// release ends a lease. If the disk does not let it, the lease ends by its term.
func (l *lease) release() {
	l.cancel(nil)
	l.refresher.Wait()
	_ = l.cache.dropLease(l.path, l.Token)
}
