package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// remoteStore reads an image from the registry that its reference names, or
// from a mirror of it.
type remoteStore struct {
	ref    Reference
	places []*place // the registry itself is the last
	delay  time.Duration
}

// remote gives the store of a reference to a registry; it asks nobody yet.
func (src Source) remote(ref Reference) (*remoteStore, error) {
	host := src.Hosts[ref.host]
	s := &remoteStore{ref: ref, delay: src.retryDelay()}
	for _, text := range host.Mirrors {
		m, err := parseMirror(text)
		if err != nil {
			return nil, err
		}
		plain := m.plain || src.Hosts[m.host].PlainHTTP
		s.places = append(s.places, &place{source: src, host: m.host, repository: path.Join(m.prefix, ref.repository), mirror: true, plain: plain})
	}
	s.places = append(s.places, &place{source: src, host: ref.host, repository: ref.repository, plain: host.PlainHTTP})
	return s, nil
}

func (s *remoteStore) close() {
	for _, p := range s.places {
		p.close()
	}
}

// each asks the places in order, those last that were in trouble, until one has
// given what was asked for. The error is the registry's own, with what the
// mirrors said.
func (s *remoteStore) each(ctx context.Context, ask func(*place) error) error {
	order := slices.Clone(s.places)
	slices.SortStableFunc(order, func(a, b *place) int {
		switch {
		case a.down.Load() == b.down.Load():
			return 0
		case a.down.Load():
			return 1
		default:
			return -1
		}
	})
	said := map[*place]error{}
	for _, p := range order {
		err := ask(p)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		said[p] = err
	}
	own := said[s.places[len(s.places)-1]]
	text := own.Error()
	for _, p := range s.places[:len(s.places)-1] {
		text += fmt.Sprintf(" (its mirror %s: %v)", p.host, said[p])
	}
	out := sentence{text: text, cause: own}
	var worded sentence
	if errors.As(own, &worded) {
		out.transient, out.after = worded.transient, worded.after
	}
	return out
}

// identifier is what a manifest is asked for by.
func (s *remoteStore) identifier(digest string) string {
	switch {
	case digest != "":
		return digest
	case s.ref.digest != "":
		return s.ref.digest
	default:
		return s.ref.tag
	}
}

func acceptManifests() http.Header {
	return http.Header{"Accept": {strings.Join([]string{
		string(types.OCIImageIndex), string(types.DockerManifestList),
		string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
		string(types.DockerManifestSchema1Signed), string(types.DockerManifestSchema1),
	}, ", ")}}
}

func (s *remoteStore) manifest(ctx context.Context, digest string) (m manifest, err error) {
	id := s.identifier(digest)
	want := ""
	if strings.Contains(id, ":") {
		want = id
	}
	err = s.each(ctx, func(p *place) error {
		got, err := p.get(ctx, http.MethodGet, "manifests/"+id, acceptManifests())
		if err != nil {
			return err
		}
		defer func() { _ = got.Close() }()
		raw, err := got.all(maxManifestBytes)
		if err != nil {
			return p.worded(err)
		}
		m, err = newManifest(raw, want, got.Header.Get("Content-Type"))
		m.private = p.login != nil
		return err
	})
	return m, err
}

// allowed asks with HEAD, which Docker Hub does not count. What does not answer
// that is asked as for a pull.
func (s *remoteStore) allowed(ctx context.Context) (now string, private bool, err error) {
	id := s.identifier("")
	err = s.each(ctx, func(p *place) error {
		got, err := p.get(ctx, http.MethodHead, "manifests/"+id, acceptManifests())
		if err != nil {
			return err
		}
		now, private = got.Header.Get("Docker-Content-Digest"), p.login != nil
		return got.Close()
	})
	var refused *refusal
	headless := errors.As(err, &refused) && (refused.status == http.StatusNotFound ||
		refused.status == http.StatusMethodNotAllowed || refused.status == http.StatusNotImplemented)
	if err != nil && !headless {
		return "", false, err
	}
	if strings.Contains(id, ":") && err == nil {
		return id, private, nil
	}
	if _, bad := v1.NewHash(now); err != nil || bad != nil {
		m, err := s.manifest(ctx, "")
		return m.digest.String(), m.private, err
	}
	return now, private, nil
}

func (s *remoteStore) blob(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &blobReader{ctx: ctx, cancel: cancel, store: s, blob: blob, at: offset, since: offset}
	if err := r.open(); err != nil {
		cancel()
		return nil, err
	}
	return r, nil
}
